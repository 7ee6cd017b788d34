package charge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var began = time.UnixMilli(1_790_000_000_000)

func TestDivide(t *testing.T) {
	const hour = 3_600_000
	share := func(gpus, cpus int) Share { return Share{gpus, cpus} }
	for name, c := range map[string]struct {
		node   Node
		after  time.Duration
		shares []Share
		want   string
	}{
		"nothing is held":           {Node{GPUs: 8}, time.Hour, nil, "[] {3600000 28800000}"},
		"half of the GPUs":          {Node{GPUs: 8, CPUs: 96}, time.Hour, []Share{share(4, 0)}, "[{1800000 14400000}] {1800000 14400000}"},
		"no GPUs of a node with":    {Node{GPUs: 8, CPUs: 96}, time.Hour, []Share{share(0, 96), share(0, 0)}, "[{0 0} {0 0}] {3600000 28800000}"},
		"more GPUs than there are":  {Node{GPUs: 2}, time.Hour, []Share{share(1, 0), share(4, 0)}, "[{1800000 3600000} {1800000 3600000}] {0 0}"},
		"thirds":                    {Node{GPUs: 3}, time.Second, []Share{share(1, 0), share(1, 0), share(1, 0)}, "[{333 1000} {333 1000} {333 1000}] {1 0}"},
		"CPUs":                      {Node{CPUs: 96}, time.Hour, []Share{share(0, 24)}, "[{900000 0}] {2700000 0}"},
		"CPUs and two that ask not": {Node{CPUs: 96}, time.Hour, []Share{share(0, 0), share(0, 48), share(0, 0)}, "[{900000 0} {1800000 0} {900000 0}] {0 0}"},
		"CPUs that are not known":   {Node{}, time.Second, []Share{share(0, 4), share(0, 0), share(0, 0)}, "[{333 0} {333 0} {334 0}] {0 0}"},
		"the same moment":           {Node{GPUs: 8}, 0, []Share{share(8, 0)}, "[{0 0}] {0 0}"},
		"a clock that was set back": {Node{GPUs: 8}, -time.Hour, []Share{share(8, 0)}, "[{0 0}] {0 0}"},
		"a clock that was stopped":  {Node{GPUs: 8}, 40 * 24 * time.Hour, []Share{share(8, 0)}, fmt.Sprintf("[{%d %d}] {0 0}", 960*hour, 8*960*hour)},
		"absurd numbers":            {Node{CPUs: 1 << 62}, 200 * 365 * 24 * time.Hour, []Share{share(0, 1<<61)}, "[{3153600000000 0}] {3153600000000 0}"},
	} {
		c.node.Since = began
		each, idle := c.node.Divide(began.Add(c.after), c.shares)
		if got := fmt.Sprint(each, idle); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
	if each, idle := (Node{GPUs: 8}).Divide(began, []Share{share(8, 0)}); each[0] != (Time{}) || idle != (Time{}) {
		t.Errorf("without a beginning: %v %v", each, idle)
	}
}

// TestNothingIsLost checks that charged time and idle time add up to all time, wherever the time is
// cut, and that neither is negative.
func TestNothingIsLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := Node{GPUs: rng.IntN(4), CPUs: rng.IntN(4), Since: began}
		var shares []Share
		for range rng.IntN(4) {
			shares = append(shares, Share{rng.IntN(3), rng.IntN(3)})
		}
		var sum Time
		for range 3 {
			until := n.Since.Add(time.Duration(rng.Int64N(int64(time.Minute))))
			each, idle := n.Divide(until, shares)
			for _, x := range append(each, idle) {
				if x.Nodes < 0 || x.GPUs < 0 {
					t.Fatalf("%+v of %v are charged for %v, idle %v", n, shares, each, idle)
				}
				sum.Add(x)
			}
			n.Since = until
		}
		if passed := n.Since.UnixMilli() - began.UnixMilli(); sum != (Time{passed, passed * int64(n.GPUs)}) {
			t.Fatalf("%+v of %v: %v in %d ms", n, shares, sum, passed)
		}
	}
}

// TestLedgerIsBounded checks that users beyond the bound are counted together, and that no time is
// lost.
func TestLedgerIsBounded(t *testing.T) {
	l := NewLedger()
	for i := range 2 * MaxKinds {
		at := began.Add(time.Duration(i) * time.Second)
		l.Rest(l.Begin(at, fmt.Sprint("kind", i)), Time{1, 1})
	}
	l.Fold("user0", map[string]Time{"kind0": {1, 8}})
	for i := range 2 * maxPairs {
		l.Fold(fmt.Sprint("user", i+1), map[string]Time{"kind0": {1, 8}, "kind1": {1, 8}})
	}
	l.Fold("user0", map[string]Time{"kind0": {1, 8}})
	if len(l.Idle) != MaxKinds+1 || l.Idle[""] != (Time{MaxKinds, MaxKinds}) || l.Idle["kind0"] != (Time{1, 1}) || !l.Since.Equal(began) {
		t.Errorf("%d kinds since %v, the late ones: %v", len(l.Idle), l.Since, l.Idle[""])
	}
	var sum Time
	for _, x := range l.Users {
		sum.Add(x)
	}
	if want := int64(4*maxPairs + 2); sum != (Time{want, 8 * want}) || len(l.Users) > maxPairs+MaxKinds || l.Users[Pair{"user0", "kind0"}] != (Time{2, 16}) {
		t.Errorf("%d pairs with %v", len(l.Users), sum)
	}
	last := fmt.Sprint("user", maxPairs/2)
	if _, odd := l.Users[Pair{last, "kind1"}]; odd || l.Users[Pair{last, "kind0"}] != (Time{1, 8}) {
		t.Error("which kind has the last room does not follow from the log")
	}
}
