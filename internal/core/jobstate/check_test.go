package jobstate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// check compares the answer to an event with the truth.
func (t *truth) check(ev job.Event, actions []job.Action, reason string) error {
	if t.result != nil && (len(actions) > 0 || reason != "") {
		return fmt.Errorf("after the end: %v, %q", actions, reason)
	}
	if len(actions) > 0 && reason == "" {
		return fmt.Errorf("no reason for %v", actions)
	}
	if len(reason) > 600 || strings.Contains(reason, "\n") {
		return fmt.Errorf("unreadable reason %q", reason)
	}
	t.masterGone = t.masterGone || t.asked.node != "" && !t.w.state.Has(t.asked.node)
	for node := range t.homes { // another node may take its place
		if t.w.state.Excludes(node) || t.leaves[node] && !t.w.state.Has(node) {
			delete(t.homes, node)
		}
	}
	if strings.Contains(reason, "at no cost") {
		t.free++
	}
	for _, m := range t.w.state.masters.of {
		if a := m.question; a != nil && !t.w.state.Has(a.Node) {
			return fmt.Errorf("waits for %v, which is not there", a)
		}
	}
	if err := t.checkExpiry(ev); err != nil {
		return err
	}
	if err := t.checkGrowth(ev, actions); err != nil {
		return err
	}
	t.noteUnreachable(ev, actions)
	again := isA[job.Rejoined](ev)
	for _, act := range actions {
		if err := t.checkAction(ev, act, again); err != nil {
			return fmt.Errorf("%v: %w", act, err)
		}
	}
	if slices.ContainsFunc(actions, isA[job.Start]) {
		t.missed = ""
	}
	if err := t.checkKill(ev, actions); err != nil {
		return err
	}
	if err := t.checkDepartures(ev, actions); err != nil {
		return err
	}
	for _, node := range t.w.state.Idle() {
		for id, r := range t.w.agent(node).runs {
			if len(r.alive) > 0 {
				return fmt.Errorf("%s could be given back while unit %d runs there", node, id)
			}
		}
	}
	return t.checkHomes(actions)
}

// checkGrowth checks that ranks are stopped for growth only when their time is over and there are
// more nodes. When a node joins or has more free GPUs, only growth may stop ranks.
func (t *truth) checkGrowth(ev job.Event, actions []job.Action) error {
	out, late := ev.(job.TimedOut)
	late = late && out.Kind == job.AlarmGrow
	t.growDue = t.growDue || late && out.Seq == t.alarms[job.AlarmGrow]
	grows := func(a job.Action) bool { return isA[job.Notice](a) || isA[job.Stop](a) }
	if !late && !isA[job.Joined](ev) && !isA[job.Freed](ev) || !slices.ContainsFunc(actions, grows) {
		return nil
	}
	at, nodes := attemptOf{0, t.newest[0]}, 0
	for p := range t.ordered {
		if p.attemptOf == at {
			nodes++
		}
	}
	if !t.growDue || nodes >= t.w.spec.Request.MaxNodes || len(t.w.state.roster.list()) == 0 || len(t.failed[at]) > 0 || t.evacuated[at] {
		return fmt.Errorf("%v grows from %d nodes", at, nodes)
	}
	t.evacuated[at] = true
	return nil
}

func isA[T any, V any](v V) bool {
	_, ok := any(v).(T)
	return ok
}

func (t *truth) checkAction(ev job.Event, act job.Action, again bool) error {
	switch act := act.(type) {
	case job.Prepare:
		t.asked = questionOf(act)
		t.masterGone, t.used[t.asked] = false, false
		clear(t.reach)
		return t.checkBegin(attemptOf{act.Unit, act.Attempt}, act.Node)
	case job.Reach:
		return t.checkReach(act, again)
	case job.Start:
		t.growDue = t.growDue && again
		if n := t.w.agent(act.Group.Node.Name).node; slices.ContainsFunc(act.Group.Bundles, func(b placement.Bundle) bool {
			return b.GPU != nil && n.GPUs[b.GPU.Index].HeldBy != ""
		}) {
			return fmt.Errorf("a stranger holds one of %v", n.GPUs)
		}
		return t.checkStart(act, again)
	case job.Stop:
		return t.checkStop(act, again)
	case job.Wait:
		return t.checkWait(act)
	case job.Alarm:
		if act.Seq <= t.alarms[act.Kind] {
			return fmt.Errorf("sequence number used before")
		}
		t.alarms[act.Kind] = act.Seq
	case job.Quarantine:
		if !t.broken[act.Node] || t.w.spec.ExcludeAfter == 0 {
			return fmt.Errorf("its hardware has not failed, or that does not matter")
		}
	case job.Finish:
		return t.checkFinish(ev, act.Result)
	}
	return nil
}

// checkBegin checks that an attempt may begin: the job goes on, this is the unit's next attempt,
// and its backoff is over.
func (t *truth) checkBegin(at attemptOf, node string) error {
	newest, begun := t.newest[at.unit]
	switch {
	case t.cancels > 0 || t.expires && (!begun || at.attempt > newest) || t.w.state.ending.result != nil:
		return fmt.Errorf("when the end is decided")
	case t.spawned:
		return fmt.Errorf("what cannot be started is tried again")
	case !t.w.agent(node).known:
		return fmt.Errorf("to a lost node")
	case at.attempt > t.budget()+len(t.evacuated) || at.attempt > 0 && t.w.spec.Restart == job.RestartNever:
		return fmt.Errorf("more than %d restarts", t.w.spec.MaxRestarts)
	case at.attempt > 0 && !t.elapsed[at]:
		return fmt.Errorf("before its backoff was over")
	case begun && at.attempt < newest, !begun && at.attempt != 0, at.attempt > newest+1:
		return fmt.Errorf("not the attempt after %d", newest)
	}
	return nil
}

// checkReach checks that only nodes other than the master are asked, and only about the newest
// port. It also checks that each is asked once, apart from repeated orders.
func (t *truth) checkReach(o job.Reach, again bool) error {
	old := t.reach[o.Node]
	switch n := t.w.agent(o.Node); {
	case t.cancels > 0 || t.w.state.ending.result != nil:
		return fmt.Errorf("when the end is decided")
	case !n.known:
		return fmt.Errorf("to a lost node")
	case n.node.Addr.String() == o.Addr || t.masterGone:
		return fmt.Errorf("to the master, or when that is lost")
	case !slices.Contains(t.ports[t.asked], o.Port):
		return fmt.Errorf("the port is not an answer to %v", t.asked)
	case o.Late != t.used[t.asked]:
		return fmt.Errorf("ranks have started there: %v", t.used[t.asked])
	case again != (o == old):
		return fmt.Errorf("the question before was %v", old)
	}
	t.reach[o.Node] = o
	return nil
}

// checkReached checks that a node with an order to start has said that it reaches the master, if
// there is a master.
func (t *truth) checkReached(o job.Start) error {
	node := o.Group.Node
	if node.Addr.String() == o.World.MasterAddr || t.masterGone {
		return nil
	}
	if ask := t.reach[node.Name]; ask.Addr != o.World.MasterAddr || ask.Port != o.World.MasterPort || !t.reached[ask] {
		return fmt.Errorf("%s has not reported that it reaches the master", node.Name)
	}
	return nil
}

func (t *truth) checkStart(o job.Start, again bool) error {
	at, node := attemptOf{o.Unit, o.Attempt}, o.Group.Node.Name
	if err := t.checkBegin(at, node); err != nil {
		return err
	}
	p := place{at, node}
	if t.ordered[p] != nil && !again {
		return fmt.Errorf("ordered twice")
	}
	last := attemptOf{o.Unit, o.Attempt - 1}
	if _, failed := t.failed[last]; o.Attempt > 0 && !failed && !t.evacuated[last] {
		return fmt.Errorf("attempt %d did not fail", o.Attempt-1)
	}
	if t.told[p] || t.begun[p] {
		return fmt.Errorf("it has started, or was ordered to stop")
	}
	moves := t.missed != "" && (o.Group.NodeRank == 0 || node == t.missed)
	if home, ok := t.homes[node]; ok && home != o.Group.NodeRank && t.rigid() && !moves {
		return fmt.Errorf("%s had node rank %d", node, home)
	}
	if !again { // a repeated order may be from before the newest question
		t.used[t.asked] = true
	}
	if n := t.w.state.roster.nodes[node]; n.leaves != nil && !again {
		return fmt.Errorf("%s leaves", node)
	}
	t.homes[node] = o.Group.NodeRank
	t.newest[o.Unit] = o.Attempt
	t.ordered[p] = nil
	for _, b := range o.Group.Bundles {
		t.ordered[p] = append(t.ordered[p], b.Rank)
	}
	if !again && !slices.Contains(t.ports[t.asked], o.World.MasterPort) {
		return fmt.Errorf("the port is not an answer to %v", t.asked)
	}
	if err := t.checkWorld(o); err != nil {
		return err
	}
	if err := t.checkReached(o); err != nil && !again {
		return err
	}
	return t.alone(o)
}

// checkWorld compares what ranks learn about the whole job with the request.
func (t *truth) checkWorld(o job.Start) error {
	r := t.w.spec.Request
	per := r.PerNode
	if len(per) > 1 {
		per = per[:o.World.Nodes]
	}
	want := job.World{
		WorldSize: ranks(r, o.World.Nodes), Nodes: o.World.Nodes, Uniform: per[0], MaxRestarts: t.w.spec.MaxRestarts,
		MasterAddr: o.World.MasterAddr, MasterPort: o.World.MasterPort, LocalSize: per[min(o.Group.NodeRank, len(per)-1)],
	}
	want.RoleSize, want.RoleFirst = want.WorldSize, o.Group.Bundles[0].Rank-o.Group.Bundles[0].LocalRank // no node names a role
	if slices.Min(per) != slices.Max(per) {
		want.Uniform = 0
	}
	if r.GPU {
		held := func(g placement.GPU) bool { return g.HeldBy != "" }
		want.GPUs = slices.DeleteFunc(slices.Clone(o.Group.Node.GPUs), held)[:want.LocalSize]
	}
	if !reflect.DeepEqual(o.World, want) {
		return fmt.Errorf("world is %+v, want %+v", o.World, want)
	}
	return nil
}

// rigid reports whether ranks change their nodes only when nodes are lost: the job has one size and
// takes any node.
func (t *truth) rigid() bool {
	r := t.w.spec.Request
	return r.MinNodes == r.MaxNodes && len(r.PerNode) == 1
}

func (t *truth) checkStop(o job.Stop, again bool) error {
	p := place{attemptOf{o.Unit, o.Attempt}, o.Node}
	kill := t.cancels > 1
	switch {
	case t.ordered[p] == nil || t.newest[o.Unit] != o.Attempt:
		return fmt.Errorf("nothing to stop")
	case t.ended[p]:
		return fmt.Errorf("it has stopped")
	case t.told[p] && !again && !kill:
		return fmt.Errorf("ordered twice")
	case o.Kill != kill:
		return fmt.Errorf("after %d cancels", t.cancels)
	}
	if _, told := t.kept[p]; !told {
		t.kept[p] = t.evidence(p.attemptOf)
	}
	if want := t.kept[p]; o.Evidence != want && !t.evacuated[p.attemptOf] && (t.cancels == 0 || o.Evidence != job.NoEvidence) {
		return fmt.Errorf("keeps %q, not %q", o.Evidence, want)
	}
	t.told[p] = true
	return nil
}

// evidence is the evidence that must be kept of an attempt.
func (t *truth) evidence(at attemptOf) job.Evidence {
	switch {
	case len(t.failed[at]) == 0 || t.cancels > 0:
		return job.NoEvidence
	case t.hung[at]:
		return job.HangEvidence
	}
	return job.CrashEvidence
}

func (t *truth) checkWait(o job.Wait) error {
	old := attemptOf{o.Unit, o.Attempt - 1}
	if t.expires {
		return fmt.Errorf("when the job is to end")
	}
	if _, failed := t.failed[old]; !failed && !t.evacuated[old] || t.newest[o.Unit] != old.attempt || t.elapsed[attemptOf{o.Unit, o.Attempt}] {
		return fmt.Errorf("it is not its time")
	}
	if o.Restarts < 1 && !t.evacuated[old] || o.Restarts > t.budget() {
		return fmt.Errorf("of %d restarts", t.budget())
	}
	for p := range t.ordered {
		if p.attemptOf == old && !t.ended[p] {
			return fmt.Errorf("unit %d attempt %d may live on %s", old.unit, old.attempt, p.node)
		}
	}
	return nil
}

// checkExpiry checks that a job whose end was announced ends when its ranks are ready or the time
// is over.
func (t *truth) checkExpiry(ev job.Event) error {
	r := t.w.state.ending.result
	if r == nil || r.Code != codeExpired || t.expired {
		return nil
	}
	t.expired = true
	if out, ok := ev.(job.TimedOut); ok && out.Kind == job.AlarmDeparture && t.departs[out.Seq].every {
		return nil
	}
	for p := range t.ordered {
		if t.newest[p.unit] == p.attempt && !t.ended[p] && !t.readied[p] {
			return fmt.Errorf("the job ends, and %v is not ready", p)
		}
	}
	return nil
}

// done reports whether all ranks exited 0 and none was stopped.
func (t *truth) done() bool {
	for id := range t.w.state.progress.units {
		at := attemptOf{id, t.newest[id]}
		if _, begun := t.newest[id]; !begun || !t.allHeard(at) || len(t.failed[at]) > 0 {
			return false
		}
	}
	for p := range t.told {
		if t.newest[p.unit] == p.attempt {
			return false
		}
	}
	return true
}

// checkKill checks that the second cancel reaches every process.
func (t *truth) checkKill(ev job.Event, actions []job.Action) error {
	if c, ok := ev.(job.Cancel); !ok || c.Within > 0 || c.Once || t.cancels < 2 || t.result != nil {
		return nil
	}
	for p := range t.ordered {
		if t.newest[p.unit] != p.attempt || t.ended[p] {
			continue
		}
		if !slices.Contains(actions, job.Action(job.Stop{Node: p.node, Unit: p.unit, Attempt: p.attempt, Grace: t.w.spec.Grace, Kill: true, Evidence: job.NoEvidence, Signal: t.signal, Alarm: 0})) {
			return fmt.Errorf("cancel %d does not kill %v", t.cancels, p)
		}
	}
	return nil
}

// checkHomes checks that a rigid gang keeps all nodes that were not lost.
func (t *truth) checkHomes(actions []job.Action) error {
	if len(actions) == 0 || !isA[job.Start](actions[0]) || !t.w.state.gang() || !t.rigid() || len(actions) != t.w.spec.Request.MinNodes {
		return nil
	}
	if len(t.homes) > len(actions) {
		return fmt.Errorf("nodes %v had places, and other nodes took them", t.homes)
	}
	return nil
}
