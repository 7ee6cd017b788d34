package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParsePerNode(t *testing.T) {
	for in, want := range map[string][]int{
		"8":                     {8},
		"auto":                  {AllGPUs},
		" AUTO ":                {AllGPUs},
		"4,8,2":                 {4, 8, 2},
		"4, 8, 2":               {4, 8, 2},
		"65535":                 {maxPerNode},
		"":                      nil,
		"0":                     nil,
		"-1":                    nil,
		"+8":                    nil,
		"8,":                    nil,
		"8,auto":                nil,
		"65536":                 nil,
		"1e3":                   nil,
		"8x":                    nil,
		"999999999999999999999": nil,
	} {
		got, err := ParsePerNode(in)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
		}
	}
	_, err := ParsePerNode("4,x")
	const want = `ranks per node "4,x": "x" is not a number from 1 to 65535; want a number, a list such as 4,8,2, or auto`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseStrategy(t *testing.T) {
	for in, want := range map[string]Strategy{
		"STRICT_PACK": StrictPack, "strict-pack": StrictPack, "Pack": Pack, "spread": Spread, "strict_Spread": StrictSpread,
	} {
		if got, err := ParseStrategy(in); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "packed", "strict pack"} {
		want := fmt.Sprintf("unknown strategy %q; want STRICT_PACK, PACK, SPREAD or STRICT_SPREAD", in)
		if got, err := ParseStrategy(in); got != "" || err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v; want %s", in, got, err, want)
		}
	}
}

// The result of reading can be written and read again, and is a valid request.
func FuzzParsePerNode(f *testing.F) {
	for _, s := range []string{"8", "auto", "4,8,2", "", ",", "-1", "65536", " 1 , 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParsePerNode(s)
		if err != nil || len(list) > maxNodes {
			return
		}
		r := Request{MinNodes: 1, MaxNodes: len(list), PerNode: list, GPU: true}
		if err := r.Validate(); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		written := "auto"
		if list[0] != AllGPUs {
			written = strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
		}
		if again, err := ParsePerNode(written); err != nil || !slices.Equal(again, list) {
			t.Fatalf("%q: got %v, then %v, %v", s, list, again, err)
		}
	})
}

func FuzzParseStrategy(f *testing.F) {
	for _, s := range []string{"strict-pack", "PACK", "spread", "strict_spread", "", "ſpread"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseStrategy(s)
		if err != nil {
			return
		}
		r := Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}, Strategy: got}
		if err := r.Validate(); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
