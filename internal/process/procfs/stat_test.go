package procfs

import (
	"testing"
)

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c) Z 7 8 9 0 -1 4194560 0"
	want := Stat{PID: 42, PPID: 7, Group: 8, Session: 9, Comm: "a) b (c", State: 'Z'}
	if st, ok := parseStat(42, []byte(line)); !ok || st != want || !st.Dead() {
		t.Errorf("%q: got %+v, %v", line, st, ok)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x)", "42 (x) R 1 2", "42 (x) R a b c", ") 42 ("} {
		if _, ok := parseStat(42, []byte(bad)); ok {
			t.Errorf("%q is taken for a line of /proc/PID/stat", bad)
		}
	}
}
