package fold

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRanks(t *testing.T) {
	every := func(n, of int) (ranks []int) {
		for r := 0; r < n; r += of {
			ranks = append(ranks, r)
		}
		return ranks
	}
	for _, c := range []struct {
		ranks Ranks
		want  string
	}{
		{nil, "no rank"},
		{Of(37), "r37"},
		{Of(8, 2, 1, 0, 3, 3), "r0-3,8"},
		{Ranks{{0, 36}, {38, 511}}, "r0-511 -r37"},
		{Ranks{{0, 1}, {3, 9}, {20, 100_000}}, "r0-1,3-9,20-100000"},
		{Of(every(512, 2)...), "r0,2,4,6,8,10,12,14 +248 more"},
		{Of(slices.DeleteFunc(every(512, 1), func(r int) bool { return r%64 == 7 })...), "r0-511 -r7,71,135,199,263,327,391,455"},
	} {
		if got := c.ranks.String(); got != c.want || len(got) > 200 {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestSet compares a set with a map.
func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s set
		for range 2 { // the contents before the reset do not matter
			s.reset()
			in := map[int]bool{}
			for _, r := range rapid.SliceOf(rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 200), rapid.IntRange(0, MaxRank))).Draw(t, "ranks") {
				if s.add(r) == in[r] {
					t.Fatalf("%d is there: %v", r, in[r])
				}
				in[r] = true
			}
			var all []int
			for r := range in {
				all = append(all, r)
			}
			got := s.ranks()
			if slices.Sort(all); !slices.Equal(slices.Collect(got.All()), all) || got.Len() != len(all) || s.n != len(all) {
				t.Fatalf("%v of %v", got, all)
			}
			for _, r := range all {
				if !got.Has(r) || !s.has(r) || got.Has(r+1) != in[r+1] || s.has(r+1) != in[r+1] {
					t.Fatalf("%d or what follows in %v", r, got)
				}
			}
		}
	})
}

// Has reports whether a rank is in the set.
func (r Ranks) Has(rank int) bool {
	_, found := slices.BinarySearchFunc(r, rank, func(of Range, rank int) int {
		switch {
		case of.Last < rank:
			return -1
		case of.First > rank:
			return 1
		}
		return 0
	})
	return found
}
