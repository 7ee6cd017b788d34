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

func TestParsePerGPU(t *testing.T) {
	for s, want := range map[string]int{
		"1": 1, "1.0": 1, "1/1": 1, "0.5": 2, ".5": 2, " 1/2 ": 2, "0.25": 4, "0.2": 5, "0.1": 10, "1/3": 3, "0.125": 8, "1/48": 48, "0.333333333333": 3,
	} {
		if got, err := ParsePerGPU(s); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"0": "from 1/2 to 1/48", "": "from 1/2 to 1/48", "-0.5": "from 1/2 to 1/48", "half": "from 1/2 to 1/48", "NaN": "from 1/2 to 1/48",
		"1/0": "from 1/2 to 1/48", "1/49": "from 1/2 to 1/48", "0.01": "from 1/2 to 1/48", "2/4": "from 1/2 to 1/48", "1/2.5": "from 1/2 to 1/48",
		"0.3": "the nearest is 1/3", "0.33": "the nearest is 1/3", "0.6": "the nearest is 1/2", "0.9": "the nearest is 1/1",
		"1.5": "a rank has one GPU, or a part of one such as 0.5", "2": "a rank has one GPU", "Inf": "a rank has one GPU",
	} {
		if got, err := ParsePerGPU(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", s)) {
			t.Errorf("%q: got %d, %v; want %q", s, got, err, want)
		}
	}
}

// What ParsePerNode returns is valid in a request. Written as a text and read again, it is the
// same.
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
