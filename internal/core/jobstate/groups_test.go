package jobstate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/placement"
)

// TestGroupWorlds runs jobs of replica groups in random worlds.
func TestGroupWorlds(t *testing.T) {
	ends := map[string]int{}
	for seed := range uint64(mutants.Worlds(4000)) {
		w := newWorld(seed)
		w.spec.Restart, w.spec.Groups = job.RestartGroup, 1+w.rng.IntN(3)
		w.spec.MinGroups = 1 + w.rng.IntN(w.spec.Groups)
		nodes := w.spec.Groups * (1 + w.rng.IntN(2))
		w.spec.Request = placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{1}}
		if w.chance(2) { // several groups share a node
			w.spec.Request = placement.Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{w.spec.Groups}}
		}
		w.spec.GrowAfter = 0
		w.agents = w.agents[:0]
		for i := range w.spec.Request.MaxNodes + w.rng.IntN(3) {
			w.agents = append(w.agents, &agent{node: placement.Node{
				Name: fmt.Sprintf("n%d", i), Addr: addrOf(i), GPUs: gpus(2),
			}})
		}
		w.state = New(w.spec)
		if err := w.run(); err != nil {
			for _, r := range w.history[max(0, len(w.history)-12):] {
				t.Logf("%v", r)
			}
			for _, u := range w.state.progress.units {
				t.Logf("group %d: %s, attempt %d, live %d, left %d, abandoned %v: %+v", u.id, u.phase, u.attempt, u.live, u.left, u.abandoned, u.cause)
			}
			t.Fatalf("seed %d: %v; %+v", seed, err, w.spec)
		}
		what, _, _ := strings.Cut(w.truth.result.Reason, ":")
		ends[what]++
		for _, u := range w.state.progress.units {
			if u.abandoned && w.truth.result.Code == 0 {
				ends["without a group"]++
			}
		}
	}
	for _, want := range []string{"job succeeded", "job failed", "without a group"} {
		if ends[want] == 0 {
			t.Errorf("no world had %q: %v", want, ends)
		}
	}
}

// checkGroups checks rules that hold for all units. An agent checks that no earlier attempt of a
// unit lives when the next one starts.
func (t *truth) checkGroups(actions []job.Action, reason string) error {
	switch {
	case t.result != nil && (len(actions) > 0 || reason != ""):
		return fmt.Errorf("after the end: %v, %q", actions, reason)
	case len(actions) > 0 && reason == "":
		return fmt.Errorf("no reason for %v", actions)
	case len(reason) > 900 || strings.Contains(reason, "\n"):
		return fmt.Errorf("unreadable reason %q", reason)
	}
	for _, act := range actions {
		switch o := act.(type) {
		case job.Start:
			p := place{attemptOf{o.Unit, o.Attempt}, o.Group.Node.Name}
			t.newest[o.Unit], t.ordered[p] = o.Attempt, nil
			for _, b := range o.Group.Bundles {
				t.ordered[p] = append(t.ordered[p], b.Rank)
			}
			size := t.w.state.perUnit()
			if o.World.Group != o.Unit || o.World.WorldSize != size || o.World.FirstRank != o.Unit*size {
				return fmt.Errorf("%v: %+v", o, o.World)
			}
			if m := t.w.state.masters.of[o.Unit]; m.port != o.World.MasterPort {
				return fmt.Errorf("%v with another port than %d", o, m.port)
			}
		case job.Finish:
			t.result = &o.Result
			if t.anyAlive() {
				return fmt.Errorf("processes live")
			}
			if o.Result.Code == 0 {
				return t.checkGroupsDone()
			}
		}
	}
	return nil
}

// checkGroupsDone checks that all ranks of enough groups have exited 0.
func (t *truth) checkGroupsDone() error {
	done := 0
	for id, u := range t.w.state.progress.units {
		if u.abandoned {
			continue
		}
		done++
		at := attemptOf{id, t.newest[id]}
		for rank := range t.w.state.perUnit() {
			if exit, ended := t.exits[at][id*t.w.state.perUnit()+rank]; !ended || !exit.OK() {
				return fmt.Errorf("rank %d of group %d: %v", rank, id, exit)
			}
		}
	}
	if done < t.w.spec.MinGroups {
		return fmt.Errorf("%d groups are done, of %d that are needed", done, t.w.spec.MinGroups)
	}
	return nil
}
