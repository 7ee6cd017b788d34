package ncclprobe

import (
	"testing"
)

func TestDiffering(t *testing.T) {
	many := map[string][]int{"a": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "b and c": {10}}
	if got, want := differing(many), "a (ranks 0 1 2 3 4 5 6 7 and 2 more), b and c (ranks 10)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := differing(map[string][]int{"a": {0, 1}}); got != "" {
		t.Error(got)
	}
}
