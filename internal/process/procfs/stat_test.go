package procfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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

// TestReadFile: ReadFile reads a file that is larger than its first buffer, as [os.ReadFile] does.
func TestReadFile(t *testing.T) {
	const file = "/proc/self/environ"
	want, err := os.ReadFile(file)
	if got, other := ReadFile(file); err != nil || other != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v, want %q, %v", got, other, want, err)
	}
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, bytes.Repeat([]byte("x"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(long); err != nil || len(got) != 5000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := ReadFile("/proc/0/stat"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
