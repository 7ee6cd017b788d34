package pairtests

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes enough worlds, which are small, for rare cases. A file of a failed world would
// hide other bugs.
func TestMain(m *testing.M) {
	flag.Parse()
	settings := map[string]string{"rapid.nofailfile": "true"}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		settings["rapid.checks"] = "2000"
	}
	if *worldSeed != "" {
		settings["rapid.seed"], settings["rapid.checks"], settings["rapid.shrinktime"] = *worldSeed, "1", "0s"
	}
	for name, value := range settings {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

var worldSeed = flag.String("world-seed", "", "make just the world that rapid makes of this seed")

// world says what tests would find: the defects of each node, by its number.
type world struct {
	nodes int
	// The nodes of alone fail even alone, the nodes of nics fail with every other node, and the
	// nodes of slow are ten times slower than others; paths are pairs that fail.
	alone, nics, slow map[int]bool
	paths             map[Test]bool
	// silent has the nodes that fall silent in a round.
	silent map[int]int
}

func (w world) test(t Test, round int) []Result {
	for _, n := range []int{t.A, t.B} {
		if at, silent := w.silent[n]; silent && round >= at {
			return []Result{{Test: Test{n, n}, Err: "silent"}}
		}
	}
	r := Result{Test: t, Bandwidth: 10}
	switch {
	case w.alone[t.A] || w.alone[t.B], !t.Alone() && (w.nics[t.A] || w.nics[t.B]), w.paths[t]:
		r.Bandwidth, r.Err = 0, "broken"
	case !t.Alone() && (w.slow[t.A] || w.slow[t.B]):
		r.Bandwidth = 1
	}
	return []Result{r}
}

// play runs all rounds and returns the numbers of rounds and of tests.
func play(t interface{ Fatalf(string, ...any) }, w world) (c Contest, took, tests int) {
	c = Contest{Nodes: w.nodes, Slow: 0.5}
	for ; ; took++ {
		next := c.Next(took)
		if len(next) == 0 {
			return c, took, tests
		}
		busy := map[int]bool{}
		for _, test := range next {
			if busy[test.A] || busy[test.B] || test.A > test.B || slices.ContainsFunc(c.Done, func(r Result) bool { return r.Test == test && r.Err != "silent" }) {
				t.Fatalf("round %d has %v among %v, after %v", took, test, next, c.Done)
			}
			busy[test.A], busy[test.B] = true, true
		}
		tests += len(next)
		for _, test := range next {
			c.Done = append(c.Done, w.test(test, took)...)
		}
	}
}

func set(nodes ...int) map[int]bool {
	m := map[int]bool{}
	for _, n := range nodes {
		m[n] = true
	}
	return m
}

func TestContest(t *testing.T) {
	for name, c := range map[string]struct {
		world
		want   string
		rounds int
	}{
		"none":                    {world{}, "", 0},
		"one":                     {world{nodes: 1}, "good", 1},
		"one, bad":                {world{nodes: 1, alone: set(0)}, "bad", 1},
		"two":                     {world{nodes: 2}, "good good", 2},
		"two, a NIC":              {world{nodes: 2, nics: set(1)}, "suspect suspect", 2},
		"two, one bad":            {world{nodes: 2, alone: set(1)}, "untested bad", 1},
		"two, slow":               {world{nodes: 2, slow: set(1)}, "good good", 2}, // nothing to compare with
		"three":                   {world{nodes: 3}, "good good good", 4},
		"three, a NIC":            {world{nodes: 3, nics: set(0)}, "bad good good", 4},
		"three, the last":         {world{nodes: 3, nics: set(2)}, "good good bad", 4},
		"three, first slow":       {world{nodes: 3, slow: set(0)}, "slow good good", 4},
		"three, second slow":      {world{nodes: 3, slow: set(1)}, "good slow good", 4},
		"three, last slow":        {world{nodes: 3, slow: set(2)}, "good good slow", 4},
		"three, two NICs":         {world{nodes: 3, nics: set(0, 1)}, "suspect suspect suspect", 4},
		"four":                    {world{nodes: 4}, "good good good good", 2},
		"four, a NIC":             {world{nodes: 4, nics: set(2)}, "good good bad good", 3},
		"four, slow":              {world{nodes: 4, slow: set(1)}, "good slow good good", 3},
		"four, two NICs":          {world{nodes: 4, nics: set(0, 2)}, "bad good bad good", 4},
		"four, all":               {world{nodes: 4, nics: set(0, 1, 2, 3)}, "suspect suspect suspect suspect", 4},
		"four, all alone":         {world{nodes: 4, alone: set(0, 1, 2, 3)}, "bad bad bad bad", 1},
		"four, a path":            {world{nodes: 4, paths: map[Test]bool{{0, 3}: true}}, "good good good good 0-3", 3},
		"four, one silent":        {world{nodes: 4, silent: map[int]int{3: 0}}, "good good good bad", 4},
		"four, one falls silent":  {world{nodes: 4, silent: map[int]int{3: 1}}, "good good good bad", 4},
		"eight, a NIC and a slow": {world{nodes: 8, nics: set(5), slow: set(0)}, "slow good good good good bad good good", 3},
	} {
		t.Run(name, func(t *testing.T) {
			contest, took, _ := play(t, c.world)
			verdicts, paths := contest.Judge()
			var got []string
			for _, v := range verdicts {
				got = append(got, string(v.State))
			}
			for _, p := range paths {
				got = append(got, fmt.Sprintf("%d-%d", p.A, p.B))
			}
			if text := strings.Join(got, " "); text != c.want || took != c.rounds {
				t.Errorf("%q after %d rounds, want %q after %d; %v", text, took, c.want, c.rounds, contest.Done)
			}
		})
	}
}

// TestEvidence checks that a verdict rests on a result.
func TestEvidence(t *testing.T) {
	contest, _, _ := play(t, world{nodes: 8, nics: set(5), slow: set(0)})
	verdicts, _ := contest.Judge()
	partner := func(n int) State { return verdicts[verdicts[n].Evidence.A+verdicts[n].Evidence.B-n].State }
	if v := verdicts[5]; v.Evidence.Err != "broken" || partner(5) != Good {
		t.Errorf("the bad node: %+v", v)
	}
	if v := verdicts[0]; v.Evidence.Bandwidth != 1 || partner(0) != Good {
		t.Errorf("the slow node: %+v", v)
	}
	for _, n := range []int{1, 2, 3, 4, 6, 7} {
		if v := verdicts[n]; !v.Tested || v.Evidence.Bandwidth != 10 || partner(n) != Good {
			t.Errorf("good node %d: %+v", n, v)
		}
	}
}

// TestWorld plants faults at random. A node is never blamed for the failure of another node or of
// the path to a good node. If most nodes are well, each fault is found within few rounds.
func TestWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{nodes: rapid.OneOf(rapid.IntRange(2, 4), rapid.IntRange(2, 12), rapid.IntRange(2, 200)).Draw(t, "nodes"), alone: set(), nics: set(), slow: set(), silent: map[int]int{}}
		faults := rapid.SliceOfNDistinct(rapid.IntRange(0, w.nodes-1), 0, w.nodes, rapid.ID).Draw(t, "faults")
		for _, n := range faults {
			switch rapid.IntRange(0, 3).Draw(t, "fault") {
			case 0:
				w.alone[n] = true
			case 1:
				w.nics[n] = true
			case 2:
				w.slow[n] = true
			case 3:
				w.silent[n] = rapid.IntRange(0, 2).Draw(t, "silent")
			}
		}
		w.paths = map[Test]bool{}
		if rapid.Bool().Draw(t, "a path") {
			a := rapid.IntRange(0, w.nodes-2).Draw(t, "from")
			w.paths[Test{a, rapid.IntRange(a+1, w.nodes-1).Draw(t, "to")}] = true
		}
		contest, took, tests := play(t, w)
		if took > lastRound(w.nodes)+1 || tests > w.nodes*(took+2) {
			t.Errorf("%d rounds and %d tests of %d nodes", took, tests, w.nodes)
		}
		most := len(w.paths) == 0 && 5*len(faults) <= w.nodes && w.nodes-len(faults) >= 3
		if most && took > 6 {
			t.Errorf("%d rounds for %d faults in %d nodes", took, len(faults), w.nodes)
		}
		verdicts, paths := contest.Judge()
		for _, p := range paths {
			if !w.paths[p.Test] {
				t.Errorf("path %v", p)
			}
		}
		few := len(w.paths)+len(w.silent)+len(w.slow) == 0 && w.nodes <= 4 && len(faults) <= w.nodes-2
		third := w.nodes == 3 && len(faults) == 1 && len(w.paths) == 0
		for n, v := range verdicts {
			silent := slices.ContainsFunc(contest.Done, func(r Result) bool { return r.Test == Test{n, n} && r.Err == "silent" })
			dead := w.alone[n] || w.nics[n] || silent
			switch {
			case few && !dead && v.State != Good, third && w.slow[n] && v.State != Slow:
				t.Errorf("node %d of %+v is %s", n, w, v.State)
			case dead && v.State == Good, dead && v.State == Slow, v.State == Slow && !w.slow[n]:
				t.Errorf("node %d of %+v is %s", n, w, v.State)
			case !dead && v.State == Bad && (len(w.paths) == 0 || len(faults) == 0):
				t.Errorf("node %d of %+v is %s", n, w, v.State)
			case most && dead && v.State != Bad, most && w.slow[n] && v.State != Slow, most && !dead && !w.slow[n] && v.State != Good:
				t.Errorf("node %d of %+v is %s; %v", n, w, v.State, contest.Done)
			}
		}
	})
}

func BenchmarkContest(b *testing.B) {
	w := world{nodes: 10_000, nics: set(17, 4711), slow: set(99)}
	for b.Loop() {
		c := Contest{Nodes: w.nodes, Slow: 0.5}
		for round := 0; ; round++ {
			tests := c.Next(round)
			if len(tests) == 0 {
				break
			}
			for _, test := range tests {
				c.Done = append(c.Done, w.test(test, round)...)
			}
		}
		if v, _ := c.Judge(); v[17].State != Bad {
			b.Fatal(v[17])
		}
	}
}
