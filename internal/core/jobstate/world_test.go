package jobstate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

var (
	worlds    = flag.Int("worlds", mutants.Worlds(20_000), "how many random worlds TestWorld makes")
	worldSeed = flag.Uint64("world-seed", 0, "make just this world, and print what happens in it")
)

// TestWorld runs jobs in random worlds. Nodes act late, die and come back; messages are lost,
// doubled and reordered; coordinators crash and start again. It compares every action with the
// processes that really live.
func TestWorld(t *testing.T) {
	if *worldSeed >= stopWorlds {
		if err := newStopWorld(*worldSeed).run(); err != nil {
			t.Error(err)
		}
		return
	}
	if *worldSeed != 0 {
		w := newWorld(*worldSeed)
		if err := w.run(); err != nil {
			t.Error(err)
		}
		t.Logf("%+v\n%v", w.spec, w.history)
		return
	}
	for seed := range uint64(1000) {
		if err := newStopWorld(stopWorlds + seed).run(); err != nil {
			t.Fatalf("%v; see go test -run TestWorld -v -world-seed=%d", err, stopWorlds+seed)
		}
	}
	var seed atomic.Uint64
	var failed atomic.Bool
	var ends sync.Map
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for n := seed.Add(1); n <= uint64(*worlds) && !failed.Load(); n = seed.Add(1) {
				w := newWorld(n)
				if err := w.run(); err != nil && failed.CompareAndSwap(false, true) {
					t.Errorf("%v; see go test -run TestWorld -v -world-seed=%d", err, n)
				}
				for what := range w.truth.seen {
					ends.Store(what, true)
				}
				ends.Store(w.truth.ending(), true)
			}
		})
	}
	all.Wait()
	for _, want := range []string{"success", "success after restarts", "rank failed", "timeout", "own failure", "cancelled", "hang", "expired", "unreachable", "a sooner departure", "lost ranks"} {
		if _, ok := ends.Load(want); !ok && !failed.Load() {
			t.Errorf("no world had %s: the worlds are too tame", want)
		}
	}
}

// world is a job and everything around it, in one goroutine, from one seed.
type world struct {
	rng    *rand.Rand
	spec   job.Spec
	state  *State
	truth  *truth
	books  books
	agents []*agent
	// timers are events that will be due. past are events that were delivered and may be delivered
	// again.
	timers, past []job.Event
	// calm says that the time of repair has begun. The other fields restrict the faults before that
	// time, so that not every world ends early.
	calm, cancels, impatient, hopeless, crashes, hangs, expires, cuts, held bool
	// drains says how rarely a node leaves: once in that many chances.
	drains int

	history []record
}

// agent is a node. A dead one has no processes. The coordinator learns of its death later, or never
// if it did not know the node.
type agent struct {
	node        placement.Node
	up, known   bool
	incarnation int
	orders      []job.Action
	reports     []sentEvent
	runs        map[int]*run
}

// sentEvent is an event with the incarnation of the agent that sent it.
type sentEvent struct {
	job.Event
	incarnation int
}

// run is the newest attempt of a unit on a node.
type run struct {
	attempt         int
	start           job.Start
	stopping, ended bool
	// hung says that its ranks end only on an order, and beats says that they have had a heartbeat.
	hung, beats bool
	alive       []int
	exits       []job.Exited
	twins       verdict.Twins
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1))}
	w.cancels, w.impatient, w.hopeless, w.crashes = w.chance(5), w.chance(8), w.chance(8), w.chance(3)
	w.hangs, w.expires, w.drains, w.cuts = w.chance(3), seed%8 == 0, 1+w.rng.IntN(3), w.chance(3)
	r := placement.Request{MinNodes: 1 + w.rng.IntN(3), PerNode: []int{1 + w.rng.IntN(2)}, GPU: w.chance(2)}
	r.MaxNodes = r.MinNodes
	if w.chance(3) {
		r.MaxNodes++
	}
	if w.chance(3) {
		r.PerNode = nil
		for range r.MaxNodes {
			r.PerNode = append(r.PerNode, 1+w.rng.IntN(2))
		}
	}
	policies := []job.Restart{job.RestartJob, job.RestartJob, job.RestartNode, job.RestartRank, job.RestartNever}
	w.spec = job.Spec{
		ID: "j", Request: r, Restart: policies[w.rng.IntN(len(policies))], MaxRestarts: w.rng.IntN(7), FixedPool: w.chance(6),
		Grace: time.Second,
	}
	if w.chance(3) {
		w.spec.RefillAfter = time.Hour
	}
	if w.chance(2) || r.MinNodes < r.MaxNodes {
		w.spec.GrowAfter, w.spec.DrainTime = time.Minute, time.Duration(w.rng.IntN(3))*time.Minute
	}
	if w.chance(2) {
		w.spec.ExcludeAfter, w.spec.ExcludeFor = 1+w.rng.IntN(3), time.Hour
	}
	if w.spec.Gang() && seed%4 == 1 {
		w.spec.LostRanks = 1 + int(seed/4%4)
	}
	for i := range r.MaxNodes + w.rng.IntN(3) {
		w.agents = append(w.agents, &agent{node: placement.Node{
			Name: fmt.Sprintf("n%d", i), Addr: addrOf(i), GPUs: gpus(1 + w.rng.IntN(3)),
		}})
	}
	if w.held = seed%8 == 4; w.held {
		for _, a := range w.agents {
			for i := range a.node.GPUs {
				if w.chance(2) {
					a.node.GPUs[i].HeldBy = "pid 4411"
				}
			}
		}
	}
	w.state, w.books = New(w.spec), books{doing: map[int]goodput.Change{}}
	w.truth = newTruth(w)
	return w
}

func addrOf(node int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(node)}) }

// chance is true once in n calls on average.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// run plays a wild time and then a calm one, in which the job must end.
func (w *world) run() error {
	if err := w.step(job.Submitted{}); err != nil {
		return err
	}
	for range 20 + w.rng.IntN(400) {
		if err := w.act(); err != nil {
			return err
		}
	}
	if err := w.calmDown(); err != nil {
		return err
	}
	for range 4000 {
		if w.truth.result != nil && !w.truth.anyAlive() {
			return nil
		}
		if err := w.act(); err != nil {
			return err
		}
	}
	return fmt.Errorf("stuck while %s", w.state.Summary().Waits)
}

// calmDown brings every node back with all that it needs, and repairs every connection.
func (w *world) calmDown() error {
	w.calm = true
	for _, a := range w.agents {
		if len(a.node.GPUs) < 2 {
			a.node.GPUs = gpus(2)
		}
		for w.held && isHeld(a) {
			if err := w.free(a); err != nil {
				return err
			}
		}
		if err := w.reconnect(a); err != nil {
			return err
		}
	}
	if w.truth.loose { // the node that announced the end ends the job
		return w.step(job.Cancel{Code: codeCancelled, Why: "the time is over"})
	}
	return nil
}

// act lets one thing happen.
func (w *world) act() error {
	a := w.agents[w.rng.IntN(len(w.agents))]
	switch n := w.rng.IntN(100); {
	case w.expires && !w.calm && w.state.progress.live > 0 && len(w.state.masters.of[0].pending) > 0 && w.chance(4): // a rare moment
		return w.expire()
	case w.held && w.chance(8):
		return w.free(a)
	case n < 25:
		return w.obey(a)
	case n < 55:
		return w.deliver(a)
	case n < 75:
		return w.live(a)
	case n < 85:
		return w.tick()
	case n < 92:
		return w.join(a)
	case !a.up && a.known:
		return w.lose(a)
	case w.calm:
		return nil
	case n < 94:
		a.die()
	case n < 96:
		return w.reconnect(a)
	case n < 97 && a.up && w.chance(w.drains):
		return w.drain(a)
	case n < 98 && w.expires && w.chance(2):
		return w.expire()
	case n < 98 && len(w.past) > 0:
		return w.step(w.past[w.rng.IntN(len(w.past))])
	case w.cancels && w.chance(2):
		return w.step(job.Cancel{Code: 130, Why: "^C", Signal: 2 * w.rng.IntN(2), Once: w.chance(2)})
	}
	return nil
}

// free ends the processes that hold GPUs of a node: all of these processes or one of them.
func (w *world) free(a *agent) error {
	ev := job.Freed{Node: a.node.Name}
	a.node.GPUs = slices.Clone(a.node.GPUs) // the job still uses the old GPUs
	for i := range a.node.GPUs {
		if g := &a.node.GPUs[i]; g.HeldBy != "" && (len(ev.GPUs) == 0 || w.chance(2)) {
			g.HeldBy = ""
			ev.GPUs = append(ev.GPUs, g.Index)
		}
	}
	return w.step(ev)
}

func isHeld(a *agent) bool {
	return slices.ContainsFunc(a.node.GPUs, func(g placement.GPU) bool { return g.HeldBy != "" })
}

// expire announces the end of the job.
func (w *world) expire() error {
	within := time.Duration(1+w.rng.IntN(3)) * time.Minute
	return w.step(job.Cancel{Code: codeExpired, Why: "the time is over", Ending: report.EndPreempted, Within: within, Loose: w.chance(2)})
}

// step hands an event to the job, checks the resulting actions, and sends the orders.
func (w *world) step(ev job.Event) error {
	w.truth.note(ev)
	recorded := ev
	if e, ok := ev.(job.Exited); ok {
		weighs := w.state.Weighs(e)
		if w.truth.weighs(e) && !weighs {
			return fmt.Errorf("what is left of %v is not looked at", e)
		}
		if !weighs {
			e.Tail, e.Traceback, e.Kernel = "", "", ""
			recorded = e
		}
	}
	actions, reason := w.state.Step(ev)
	w.history = append(w.history, record{recorded, actions, reason, w.state.Stale()})
	if w.spec.Groups > 0 {
		if err := w.truth.checkGroups(actions, reason); err != nil {
			return err
		}
	} else if err := w.truth.check(ev, actions, reason); err != nil {
		return err
	}
	if err := w.checkBooks(); err != nil {
		return err
	}
	if err := w.beat(); err != nil {
		return err
	}
	if err := w.checkSummary(); err != nil {
		return err
	}
	if w.crashes && w.chance(20) {
		return w.crash(actions)
	}
	w.perform(actions)
	return nil
}

// perform sends orders and sets timers.
func (w *world) perform(actions []job.Action) {
	for _, act := range actions {
		switch act := act.(type) {
		case job.Prepare:
			w.send(act.Node, act)
		case job.Reach:
			w.send(act.Node, act)
		case job.Start:
			w.send(act.Group.Node.Name, act)
		case job.Notice:
			w.send(act.Node, act)
		case job.Stop:
			w.send(act.Node, act)
		case job.Wait:
			w.timers = append(w.timers, job.Elapsed{Unit: act.Unit, Attempt: act.Attempt})
		case job.Alarm:
			w.timers = append(w.timers, job.TimedOut{Kind: act.Kind, Seq: act.Seq})
		}
	}
}

// checkSummary checks now and then that the job knows what it waits for.
func (w *world) checkSummary() error {
	if !w.chance(8) {
		return nil
	}
	if sum := w.state.Summary(); sum.Waits == "" || (sum.Phase == job.Finished) != (w.truth.result != nil) {
		return fmt.Errorf("bad summary %+v", sum)
	}
	return nil
}

// send puts an order on its way, sometimes twice, and never to a dead agent.
func (w *world) send(name string, order job.Action) {
	a := w.agent(name)
	if !a.up {
		return
	}
	a.orders = append(a.orders, order)
	if !w.calm && w.chance(10) {
		a.orders = append(a.orders, order)
	}
}

func (w *world) agent(name string) *agent {
	return w.agents[slices.IndexFunc(w.agents, func(a *agent) bool { return a.node.Name == name })]
}

// pick returns where in a queue the next message is: at the front or, in a wild time, anywhere.
func (w *world) pick(n int) int {
	if !w.calm && w.chance(5) {
		return w.rng.IntN(n)
	}
	return 0
}

// deliver brings an agent's report to the job, also after the agent's death.
func (w *world) deliver(a *agent) error {
	if len(a.reports) == 0 {
		return nil
	}
	i := w.pick(len(a.reports))
	r := a.reports[i]
	if w.calm || !w.chance(10) {
		a.reports = slices.Delete(a.reports, i, i+1)
	}
	if !isA[job.Stalled](r.Event) { // a Stalled is never restated: see below
		w.past = append(w.past, r.Event)
	}
	if r.incarnation == a.incarnation && a.known {
		w.truth.accept(r.Event)
	}
	if err := w.step(r.Event); err != nil {
		return err
	}
	if w.cancels && !w.calm && w.state.Phase() == job.Stopping && w.chance(3) { // a person sees it fail
		return w.step(job.Cancel{Code: 130, Why: "^C"})
	}
	return nil
}

// tick lets one of the pending timers fire. The limit of the placement fires only in an impatient
// world, and seldom.
func (w *world) tick() error {
	if len(w.timers) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.timers))
	ev := w.timers[i]
	if t, ok := ev.(job.TimedOut); ok && t.Kind == job.AlarmPlacement && !(w.impatient && w.chance(5)) {
		return nil
	}
	if t, ok := ev.(job.TimedOut); ok && t.Kind == job.AlarmRefill && t.Seq == w.truth.alarms[job.AlarmRefill] && w.truth.healthy() {
		w.truth.refills++
	}
	if t, ok := ev.(job.TimedOut); ok && t.Kind == job.AlarmExclusion {
		w.truth.readmits++
	}
	w.timers = slices.Delete(w.timers, i, i+1)
	w.past = append(w.past, ev)
	return w.step(ev)
}

// join starts an agent, or repeats that it is there.
func (w *world) join(a *agent) error {
	if !a.up && a.known {
		return w.lose(a)
	}
	if !a.up {
		a.up, a.known, a.runs, a.orders = true, true, map[int]*run{}, nil
		a.incarnation++
	}
	return w.step(job.Joined{Node: a.node})
}

// drain announces that a node will be gone. The node stays all the same, and may join again; it
// then no longer counts as leaving.
func (w *world) drain(a *agent) error {
	within := time.Duration(w.rng.IntN(4)) * time.Minute
	w.truth.drained(a.node.Name)
	return w.step(job.Draining{Node: a.node.Name, Within: within, Why: "maintenance"})
}

func (w *world) lose(a *agent) error {
	a.known = false
	return w.step(job.Lost{Node: a.node.Name, Why: "it died"})
}

// reconnect drops some of the messages on their way. Then the job repeats its orders, and the agent
// repeats all it knows.
func (w *world) reconnect(a *agent) error {
	if !a.up {
		return nil
	}
	a.orders = slices.DeleteFunc(a.orders, func(job.Action) bool { return w.chance(2) })
	a.reports = slices.DeleteFunc(a.reports, func(sentEvent) bool { return w.chance(2) })
	if err := w.step(job.Rejoined{Node: a.node.Name}); err != nil {
		return err
	}
	for id := range w.spec.Request.MaxNodes * 2 {
		r := a.runs[id]
		if r == nil {
			continue
		}
		for _, e := range r.exits {
			a.report(e)
		}
		if r.ended {
			a.report(job.Stopped{Node: a.node.Name, Unit: id, Attempt: r.attempt})
		} else {
			a.report(job.Started{Node: a.node.Name, Unit: id, Attempt: r.attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}})
		}
	}
	return nil
}
