package hostlist

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSort checks that sorting keeps all names, and puts names that a list can join next to each
// other.
func TestSort(t *testing.T) {
	names := []string{"n10", "m1", "n9", "n007", "n8", "login", "n11", "n008"}
	Sort(names)
	if got, want := Compress(names), "login,m1,n[8-11,007-008]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.StringMatching(`[a-c]{0,2}[0-9]{0,3}`)).Draw(t, "names")
		sorted := slices.Clone(names)
		Sort(sorted)
		slices.Sort(names)
		again := slices.Clone(sorted)
		Sort(again)
		if !slices.Equal(sorted, again) {
			t.Fatalf("%q, and sorted again %q", sorted, again)
		}
		slices.Sort(sorted)
		if !slices.Equal(names, sorted) {
			t.Fatalf("%q, want the names of %q", sorted, names)
		}
	})
}
