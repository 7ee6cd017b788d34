package capacity_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

var (
	worlds    = flag.Int("worlds", mutants.Worlds(many()), "how many random worlds TestWorld makes")
	worldSeed = flag.Uint64("world-seed", 0, "make just this world, and print what happens in it")
)

// many returns the number of worlds: 1,000 with [suite.All], otherwise a quarter of that.
func many() int {
	if suite.All() {
		return 1000
	}
	return 250
}

// TestWorld lets jobs arrive at clusters without nodes. In every other world providers fail, nodes
// join late, never or too small, spot nodes die and coordinators are replaced. In some of these
// worlds the clock jumps by hours. In all worlds no node is leaked, no node is deleted in use, and
// each job ends. In the worlds without faults, a job waits longer than necessary by at most the
// time that one node takes to start. There the nodes cost at most 1.2 times as much as with
// separate nodes for each job.
func TestWorld(t *testing.T) {
	first, last := uint64(1), uint64(*worlds)
	if *worldSeed != 0 {
		first, last = *worldSeed, *worldSeed
	}
	seen := map[string]int{}
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed)
		if *worldSeed != 0 {
			w.print = t.Logf
		}
		if err := w.run(); err != nil {
			t.Fatalf("%v; see go test -run TestWorld -v -world-seed=%d", err, seed)
		}
		for what := range w.seen {
			seen[what]++
		}
	}
	for _, want := range []string{"refused", "late", "lost", "takeover", "idle", "small", "drained", "two kinds", "blocked", "jump"} {
		if seen[want] == 0 && *worldSeed == 0 {
			t.Errorf("no world had %s: the worlds are too tame", want)
		}
	}
}

const (
	startTime = 60 * time.Second
	pollTime  = 5 * time.Second
	horizon   = 12 * time.Hour
)

// world is a coordinator with its log, a provider for each kind, and jobs.
type world struct {
	rng    *rand.Rand
	faults bool
	kinds  []capacity.Kind
	// most bounds the number of nodes of all kinds; 0 means no bound.
	most int
	now  time.Time
	// calm is when faults end. skew is how far the clock of coordinators is ahead, in worlds with
	// jumps.
	calm  time.Time
	skew  time.Duration
	jumps *rand.Rand

	state *replica.State
	log   []replica.Entry
	due   []replica.Entry
	// The coordinator remembers waits, next and timers, and its worker remembers created. timers
	// says when each timer fires, in the time of now: a clock that jumps does not change it.
	waits   map[capacity.Wait]time.Time
	next    time.Time
	timers  map[replica.TimerID]armed
	changed bool
	created map[string]bool
	deleted map[string]bool

	machines map[string]*machine
	nodes    int
	jobs     []*arrival
	// cost is the time for which machines have existed, added up over all machines.
	cost  time.Duration
	seen  map[string]bool
	print func(string, ...any)
}

// arrival is a job, and runs the ranks of its newest attempt.
type arrival struct {
	id             string
	at, ends       time.Time
	nodes, per     int
	takes          time.Duration
	started, ended time.Time
	submitted      bool
	runs           map[place]job.Start
}

type place struct {
	node string
	unit int
}

type armed struct {
	replica.Timer
	due time.Time
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &world{
		rng: rng, faults: seed%2 == 0, now: time.Unix(1_790_000_000, 0).UTC(), state: replica.New(), seen: map[string]bool{},
		machines: map[string]*machine{}, created: map[string]bool{}, deleted: map[string]bool{}, print: func(string, ...any) {},
		timers: map[replica.TimerID]armed{},
	}
	if seed%8 == 4 {
		w.jumps = rand.New(rand.NewPCG(seed, 8))
	}
	w.calm = w.now.Add(3 * time.Hour)
	w.apply(replica.Began(w.now, "EPOCHOFTHEWORLD"))
	for i := range 1 + rng.IntN(3) {
		k := capacity.Kind{
			Name: fmt.Sprintf("k%d", i), Max: 64, Idle: time.Duration(10+rng.IntN(110)) * time.Second, StartTimeout: 5 * time.Minute,
			Cost: float64(1 + rng.IntN(3)), Priority: rng.IntN(2),
		}
		k.Node = nodeOf("", 4)
		if w.faults {
			k.Max = 1 + rng.IntN(5)
		}
		w.kinds = append(w.kinds, k)
	}
	if seed%6 == 0 {
		w.most = 3
	}
	for i := range 1 + rng.IntN(12) {
		w.jobs = append(w.jobs, &arrival{
			id: fmt.Sprintf("j%d", i), at: w.now.Add(time.Duration(rng.IntN(600)) * time.Second), nodes: 1 + rng.IntN(4), per: 1 + rng.IntN(4),
			takes: time.Duration(60+rng.IntN(1200)) * time.Second, runs: map[place]job.Start{},
		})
	}
	return w
}

func nodeOf(name string, gpus int) placement.Node {
	n := placement.Node{Name: name}
	for i := range gpus {
		n.GPUs = append(n.GPUs, placement.GPU{Index: i})
	}
	return n
}

// clock returns the time on the coordinator's clock.
func (w *world) clock() time.Time { return w.now.Add(w.skew) }

// jump sets the clock, by a day at most.
func (w *world) jump() {
	if w.jumps != nil && w.now.Before(w.calm) && w.jumps.IntN(300) == 0 {
		w.seen["jump"] = true
		w.skew = time.Duration(w.jumps.IntN(48*60)-24*60) * time.Minute
		w.print("%v the clock is now ahead by %v", w.now.Unix(), w.skew)
	}
}

// chance is true once in n calls on average, while a world has faults.
func (w *world) chance(n int) bool { return w.faults && w.now.Before(w.calm) && w.rng.IntN(n) == 0 }

// apply applies an entry now and carries out its effects.
func (w *world) apply(e replica.Entry) {
	e.At = w.clock()
	w.log, w.changed = append(w.log, e), true
	out := w.state.Apply(e)
	for _, st := range out.Steps {
		for _, a := range st.Actions {
			w.act(st.Job, a)
		}
	}
	for _, node := range out.Leave {
		w.due = append(w.due, replica.Entry{Event: cluster.Lost{Node: node, Why: "drained"}})
	}
}

// settle applies due entries until none is left.
func (w *world) settle() {
	for len(w.due) > 0 {
		e := w.due[0]
		w.due = w.due[1:]
		w.apply(e)
	}
}

func (w *world) tell(id string, ev job.Event) {
	w.due = append(w.due, replica.Entry{Event: cluster.Happened{Job: id, Event: ev}})
}

func (w *world) act(id string, a job.Action) {
	j := w.jobs[slices.IndexFunc(w.jobs, func(j *arrival) bool { return j.id == id })]
	switch a := a.(type) {
	case job.Prepare:
		w.tell(id, job.Prepared{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt, Port: 1024})
	case job.Reach:
		w.tell(id, job.Reached{Node: a.Node, Seq: a.Seq})
	case job.Notice:
		w.tell(id, job.Ready{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt})
	case job.Start:
		j.runs[place{a.Group.Node.Name, a.Unit}] = a
		if j.started.IsZero() {
			j.started = w.now
		}
		j.ends = w.now.Add(j.takes)
		w.tell(id, job.Started{Node: a.Group.Node.Name, Unit: a.Unit, Attempt: a.Attempt})
	case job.Stop:
		delete(j.runs, place{a.Node, a.Unit})
		w.tell(id, job.Stopped{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt})
	case job.Wait:
		w.tell(id, job.Elapsed{Unit: a.Unit, Attempt: a.Attempt})
	case job.Finish:
		j.ended = w.now
	default: // other actions limit a wait, or concern the hardware
	}
}

// run plays until all jobs have ended and all nodes are gone.
func (w *world) run() error {
	begin := w.now
	for !w.over() {
		if w.now.Sub(begin) > horizon {
			return fmt.Errorf("after %v: %s", horizon, w.left())
		}
		w.now = w.now.Add(time.Second)
		for _, j := range w.jobs {
			w.advance(j)
		}
		w.advanceMachines()
		w.fireTimers()
		w.settle()
		w.jump()
		if err := w.takeOver(); err != nil {
			return err
		}
		w.decide()
		w.settle()
		if w.now.Unix()%int64(pollTime.Seconds()) == 0 {
			if err := w.work(); err != nil {
				return err
			}
			w.settle()
		}
	}
	return w.judge()
}

func (w *world) over() bool {
	return !slices.ContainsFunc(w.jobs, func(j *arrival) bool { return j.ended.IsZero() }) && len(w.machines)+len(w.state.Capacity.Claims) == 0
}

// left names the nodes and jobs that are left.
func (w *world) left() string {
	text := fmt.Sprintf("%d machines and %d claims are left", len(w.machines), len(w.state.Capacity.Claims))
	for _, j := range w.jobs {
		if j.ended.IsZero() {
			text += fmt.Sprintf(", job %s has not ended: %s", j.id, w.state.Cluster.Why(j.id))
		}
	}
	return text
}

func (w *world) advance(j *arrival) {
	switch {
	case !j.submitted && !w.now.Before(j.at):
		j.submitted = true
		if w.faults { // in a world with faults, each job must be able to run
			most := 0
			for _, k := range w.kinds {
				most += k.Max
			}
			if w.most > 0 {
				most = min(most, w.most)
			}
			j.nodes = min(j.nodes, most)
		}
		s := replica.Submission{Spec: cluster.Spec{Job: job.Spec{ID: j.id, MaxRestarts: 100, Request: placement.Request{
			MinNodes: j.nodes, MaxNodes: j.nodes, PerNode: []int{j.per}, GPU: true,
		}}}}
		w.print("%v job %s for %d nodes of %d GPUs", w.now.Unix(), j.id, j.nodes, j.per)
		w.apply(replica.Entry{Submitted: &s})
	case len(j.runs) == j.nodes && !w.now.Before(j.ends):
		for p, a := range j.runs {
			for _, b := range a.Group.Bundles {
				w.tell(j.id, job.Exited{Node: p.node, Unit: p.unit, Attempt: a.Attempt, Rank: b.Rank, Exit: report.Exit{}})
			}
			w.tell(j.id, job.Stopped{Node: p.node, Unit: p.unit, Attempt: a.Attempt})
		}
		clear(j.runs)
	}
	w.settle()
}

func (w *world) fireTimers() {
	for id, timer := range w.state.Timers {
		if w.timers[id].Timer != timer {
			w.timers[id] = armed{timer, w.now.Add(timer.At.Sub(w.clock()))}
		}
		if !w.timers[id].due.After(w.now) {
			w.due = append(w.due, replica.Entry{Event: id.Due(timer)})
		}
	}
}

// takeOver starts another coordinator with the log of this one.
func (w *world) takeOver() error {
	if !w.chance(1000) {
		return nil
	}
	w.seen["takeover"] = true
	again, err := replica.Replay(nil, w.log, nil)
	if err != nil {
		return err
	}
	if w.chance(2) {
		if again, err = replica.Restore(w.state.Snapshot()); err != nil {
			return err
		}
	}
	w.state, w.waits, w.next, w.changed = again, nil, time.Time{}, true
	clear(w.timers)
	clear(w.created)
	clear(w.deleted)
	return nil
}

func (w *world) decide() {
	if !w.changed && (w.next.IsZero() || w.now.Before(w.next)) {
		return
	}
	w.changed = false
	d := capacity.Decide(capacity.Situation{
		Now: w.clock(), Kinds: w.kinds, Max: w.most, Pool: w.state.Capacity, Demands: w.state.Cluster.Demands(), Offers: w.state.Cluster.Offers(), Waits: w.waits,
	})
	w.waits, w.next = d.Waits, time.Time{}
	if !d.Next.IsZero() {
		w.next = w.now.Add(d.Next.Sub(w.clock()))
	}
	if d.Blocked != "" {
		w.seen["blocked"] = true
	}
	requests := 0
	for _, a := range d.Actions {
		w.print("%v %T%+v", w.now.Unix(), a, a)
		switch a := a.(type) {
		case capacity.Request:
			requests++
			w.apply(replica.Entry{Capacity: capacity.Requested{Kind: a.Kind, Nodes: a.Nodes, Why: a.Why}})
		case capacity.Drain:
			w.seen["idle"] = true
			w.apply(replica.Entry{Event: cluster.Drain{Node: a.Node}})
		case capacity.Fail:
			w.seen["small"] = true
			w.apply(replica.Entry{Capacity: capacity.Failed{Tag: a.Tag, Why: a.Why}})
		case capacity.Delete:
			if a.Code == capacity.CodeLate {
				w.seen["late"] = true
			}
			w.apply(replica.Entry{Capacity: capacity.Released{Tag: a.Tag, Code: a.Code, Why: a.Why}})
		}
	}
	if requests > 1 {
		w.seen["two kinds"] = true
	}
}

// judge compares a world without faults with an oracle. The oracle gives each job its own nodes
// when the job arrives, and keeps them for the same idle time.
func (w *world) judge() error {
	if w.faults {
		return nil
	}
	const slack = 15 * time.Second // seconds between decisions and polls
	var oracle time.Duration
	for _, j := range w.jobs {
		if waited := j.started.Sub(j.at); waited > 2*startTime+slack {
			return fmt.Errorf("job %s has waited for %v", j.id, waited)
		}
		most := time.Duration(0)
		for _, k := range w.kinds {
			most = max(most, k.Idle)
		}
		oracle += time.Duration(j.nodes) * (startTime + j.takes + most + slack)
	}
	if w.cost > oracle*12/10 {
		return fmt.Errorf("nodes cost %v, and %v by the oracle", w.cost, oracle)
	}
	return nil
}
