package cluster

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/placement"
)

var (
	// The first 40 worlds have all situations that TestWorld must see.
	worlds    = flag.Int("worlds", max(40, mutants.Worlds(300)), "how many random worlds TestWorld makes")
	worldSeed = flag.Uint64("world-seed", 0, "make just this world, and print what happens in it")
)

// TestWorld runs many jobs in random clusters. Nodes come, die and are drained, ranks fail, and the
// coordinator crashes. It compares every outcome with the rules of the package.
func TestWorld(t *testing.T) {
	if *worldSeed != 0 {
		w := newWorld(*worldSeed)
		w.print = t.Logf
		if err := w.run(); err != nil {
			t.Error(err)
		}
		return
	}
	var seed atomic.Uint64
	var failed atomic.Bool
	var seen sync.Map
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for n := seed.Add(1); n <= uint64(*worlds) && !failed.Load(); n = seed.Add(1) {
				w := newWorld(n)
				if err := w.run(); err != nil && failed.CompareAndSwap(false, true) {
					t.Errorf("%v; see go test -run TestWorld -v -world-seed=%d", err, n)
				}
				for what := range w.seen {
					seen.Store(what, true)
				}
			}
		})
	}
	all.Wait()
	for _, want := range []string{"success", "failure", "waited", "passed", "shared", "repaired", "left", "exchanged", "kept", "avoided", "quarantined", "crashed", "reservation", "freed", "preempted", "limited", "charged"} {
		if _, ok := seen.Load(want); !ok && !failed.Load() {
			t.Errorf("no world had %s: the worlds are too tame", want)
		}
	}
}

func TestMutants(t *testing.T) { mutants.MustDie(t) }

// world is a cluster and what happens to it, in one goroutine, from one seed.
type world struct {
	*sim
	rng     *rand.Rand
	sharing sharing
	// pool has all machines, including absent ones.
	pool []placement.Node
	// calm is the time of repair. held says that strangers hold GPUs at first.
	calm, held bool
	// waited are the jobs that waited before the newest event, in order, by queue. taken are the
	// nodes that jobs behind the first job of a queue have got, since that job became the first and
	// since it last lost a node of its shadow.
	waited map[string][]string
	taken  map[string]map[string]bool
	seen   map[string]bool
	print  func(string, ...any)
	// clock says how much time passes before each event. turned says that the clock is set back at
	// times.
	clock  *rand.Rand
	turned bool
}

func newWorld(seed uint64) *world {
	w := &world{
		sim: newSim(), rng: rand.New(rand.NewPCG(seed, 2)), sharing: newSharing(seed), waited: map[string][]string{}, taken: map[string]map[string]bool{},
		seen: map[string]bool{}, print: func(string, ...any) {}, clock: rand.New(rand.NewPCG(seed, 4)), turned: seed%4 == 1,
	}
	for i := range 2 + w.rng.IntN(5) {
		w.pool = append(w.pool, machineOf(i, w.rng.IntN(5), w.rng.IntN(3)*4))
	}
	if w.held = seed%8 == 4; w.held {
		for _, n := range w.pool {
			for i := range n.GPUs {
				if w.chance(2) {
					n.GPUs[i].HeldBy = "pid 4411"
				}
			}
		}
	}
	return w
}

func (w *world) there(n placement.Node) bool {
	_, there := w.nodes[n.Name]
	return there
}

// chance is true once in n calls on average.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// run plays a wild time and then a calm one, in which every job that has room in the whole cluster
// must end.
func (w *world) run() error {
	for range 30 + w.rng.IntN(150) {
		if err := w.act(); err != nil {
			return err
		}
	}
	if err := w.calmDown(); err != nil {
		return err
	}
	for range 20_000 {
		if !slices.ContainsFunc(w.jobs, func(r *record) bool { return r.result == nil }) {
			return w.empty()
		}
		if err := w.act(); err != nil {
			return err
		}
	}
	text := "stuck"
	for _, j := range w.state.Jobs() {
		if j.Summary.Phase != job.Finished {
			text += fmt.Sprintf("\n%s %s: %s; %s", j.Spec.Job.ID, j.Summary.Phase, j.Summary.Waits, j.Waits)
		}
	}
	return errors.New(text)
}

// calmDown brings all nodes back. It adds some nodes, so that no rank blocks the only node with
// room for another job. It cancels jobs that have no room and, in the end, reservations.
func (w *world) calmDown() error {
	w.calm = true
	if w.sharing.on {
		if err := w.event(Limited{w.sharing.limits(true)}); err != nil {
			return err
		}
	}
	for name := range w.drained {
		if err := w.event(Lost{name, "it left"}); err != nil {
			return err
		}
	}
	for i := range w.pool {
		if err := w.free(i); err != nil {
			return err
		}
	}
	for range 2 {
		w.pool = append(w.pool, machineOf(len(w.pool), 4, 0))
	}
	for _, n := range w.pool {
		if !w.there(n) {
			if err := w.event(Joined{n, kindOf(n)}); err != nil {
				return err
			}
		}
	}
	for _, r := range w.jobs {
		bare := w.pool
		if _, err := placement.Solve(r.Job.Request, r.filter(bare)); (err != nil || r.Within != "") && r.result == nil {
			if err := w.event(Happened{r.Job.ID, job.Cancel{Code: 130, Why: "no room"}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *record) filter(nodes []placement.Node) []placement.Node {
	e := entry{Spec: r.Spec}
	var list []placement.Node
	for _, n := range nodes {
		list = append(list, e.only(n))
	}
	return list
}

// empty checks that no job holds anything when all jobs have ended.
func (w *world) empty() error {
	for _, n := range w.state.Nodes() {
		if len(n.Holds) > 0 {
			return fmt.Errorf("%s is held by %v after the end of all", n.Name, n.Holds)
		}
	}
	return nil
}

// act lets one thing happen.
func (w *world) act() error {
	i := w.rng.IntN(len(w.pool))
	n := w.pool[i]
	if w.sharing.on && !w.calm && w.sharing.rng.IntN(20) == 0 {
		return w.event(Limited{w.sharing.limits(w.sharing.rng.IntN(3) == 0)})
	}
	switch k := w.rng.IntN(100); {
	case w.held && w.chance(20):
		return w.free(i)
	case k < 45 && len(w.due) > 0:
		return w.deliver()
	case k < 60:
		return w.finishSome()
	case k < 70 && !w.there(n):
		return w.event(Joined{n, kindOf(n)})
	case w.calm:
		return w.cancelSome()
	case k < 80 && len(w.jobs) < 20:
		return w.submit()
	case k < 86 && w.there(n):
		return w.event(Lost{n.Name, "it died"})
	case k < 88 && w.chance(2):
		drain := Drain{Node: n.Name}
		if w.chance(2) {
			drain.Leaves = &job.Draining{Node: n.Name, Within: time.Duration(w.rng.IntN(2)) * time.Minute, Why: "maintenance"}
		}
		if err := w.event(drain); err != nil || drain.Leaves != nil {
			return err
		}
		return w.drainJobs(n.Name)
	case k < 92 && w.there(n):
		return w.event(Rejoined{n.Name})
	case k < 94 && w.there(n):
		return w.event(Joined{n, kindOf(n)})
	case k < 95:
		return w.compact()
	case k < 96:
		return w.restart()
	case k < 98:
		return w.cancelSome()
	case k < 99:
		return w.readmit()
	}
	return nil
}

// free ends the strangers that hold GPUs of a machine. Before the calm time it may end only some of
// them.
func (w *world) free(i int) error {
	n := &w.pool[i]
	ev := Freed{Node: n.Name}
	for _, g := range n.GPUs {
		if g.HeldBy != "" && (w.calm || w.chance(2)) {
			ev.GPUs = append(ev.GPUs, g.Index)
		}
	}
	if len(ev.GPUs) == 0 {
		return nil
	}
	n.GPUs, _ = job.Freed(ev).Free(n.GPUs)
	if !w.there(*n) {
		return nil
	}
	w.seen["freed"] = true
	return w.event(ev)
}

// drainJobs drains, at times, all nodes of each job that holds a given node, and stops these jobs.
func (w *world) drainJobs(node string) error {
	if w.chance(2) {
		return nil
	}
	for _, r := range slices.Clone(w.jobs) {
		if _, holds := r.held[node]; !holds || r.result != nil {
			continue
		}
		for _, other := range sorted(r.held) {
			if err := w.event(Drain{Node: other}); err != nil {
				return err
			}
		}
		if err := w.event(Happened{r.Job.ID, job.Cancel{Code: 130, Why: "^C"}}); err != nil {
			return err
		}
	}
	return nil
}

// deliver delivers one answer, mostly the oldest, but never the end of the placement limit.
func (w *world) deliver() error {
	i := 0
	if w.chance(4) {
		i = w.rng.IntN(len(w.due))
	}
	ev := w.due[i]
	w.due = slices.Delete(w.due, i, i+1)
	if e, ok := ev.Event.(job.Reached); ok && !w.calm && w.chance(8) {
		e.Err = "no route to host"
		ev.Event = e
	}
	return w.event(ev)
}

// finishSome ends the processes of a job on a node.
func (w *world) finishSome() error {
	for _, r := range w.jobs {
		for _, p := range r.places() {
			if w.chance(3) {
				code, tail := 0, ""
				if !w.calm && w.chance(4) {
					code = 1
				}
				if code != 0 && w.chance(3) {
					tail = ecc
				}
				w.end(r, p, code, tail)
				return nil
			}
		}
	}
	return nil
}

// places are where a job runs, in a fixed order.
func (r *record) places() []place {
	var list []place
	for p := range r.runs {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b place) int { return slices.Compare([]byte(fmt.Sprint(a)), []byte(fmt.Sprint(b))) })
	return list
}

// cancelSome cancels a job, or in the calm time a reservation without jobs.
func (w *world) cancelSome() error {
	for _, r := range w.jobs {
		if r.result == nil && (!w.calm && w.chance(8) || w.calm && r.Reserve && w.open(r) == 0) {
			return w.event(Happened{r.Job.ID, job.Cancel{Code: 130, Why: "^C"}})
		}
	}
	return nil
}

func (w *world) submit() error {
	r := placement.Request{MinNodes: 1 + w.rng.IntN(3), GPU: !w.chance(5)}
	r.MaxNodes = r.MinNodes
	if w.chance(4) {
		r.MaxNodes += 1 + w.rng.IntN(2)
	}
	r.PerNode = []int{1 + w.rng.IntN(3)}
	switch w.rng.IntN(6) {
	case 0:
		r.PerNode = nil
		for range r.MaxNodes {
			r.PerNode = append(r.PerNode, 1+w.rng.IntN(3))
		}
	case 1:
		if r.GPU {
			r.PerNode = []int{placement.AllGPUs}
		}
	case 2:
		r.Strategy = []placement.Strategy{placement.Pack, placement.Spread, placement.StrictSpread}[w.rng.IntN(3)]
	}
	if w.chance(4) {
		r.CPUs = 1
	}
	exclude := w.rng.IntN(3)
	policies := []job.Restart{job.RestartJob, job.RestartJob, job.RestartNode, job.RestartRank, job.RestartNever}
	spec := Spec{
		Job: job.Spec{
			ID: fmt.Sprint("j", len(w.jobs)), Request: r, Restart: policies[w.rng.IntN(len(policies))], MaxRestarts: 4,
			ExcludeAfter: exclude, ExcludeFor: time.Hour, GrowAfter: time.Duration(w.rng.IntN(2)) * time.Minute,
		},
		Backfill: w.chance(3), Reserve: w.chance(6),
	}
	if spec.Reserve && w.chance(2) {
		spec.Colocated = 2
	}
	if r.GPU && w.chance(6) {
		spec.GPUs = []int{0, 2}
	}
	if i := slices.IndexFunc(w.jobs, func(r *record) bool { return r.Reserve && r.result == nil }); i >= 0 && w.chance(2) && !spec.Reserve {
		spec.Within = w.jobs[i].Job.ID
	}
	w.sharing.ask(&spec)
	if err := w.state.Check(spec); err != nil {
		w.print("refused: %v", err)
		return nil
	}
	return w.event(Submitted{spec})
}

func (w *world) event(ev Event) error {
	d := time.Duration(w.clock.IntN(90_000)) * time.Millisecond
	if w.turned && w.clock.IntN(20) == 0 {
		d = -d
	}
	w.wait(d)
	out, err := w.step(ev)
	w.print("%T %v\n%v", ev, ev, out)
	if err != nil {
		return err
	}
	switch ev.(type) {
	case Lost, Drain:
		clear(w.taken)
	default: // it changes no nodes
	}
	if err := w.check(out); err != nil || len(out.Leave) < 2 {
		return err
	}
	return w.crash() // the restarted coordinator must name these nodes in the same order
}

// restart crashes the coordinator. Then agents come back one by one, and some have died.
func (w *world) restart() error {
	w.seen["crashed"] = true
	if err := w.crash(); err != nil {
		return err
	}
	for _, n := range w.pool {
		if _, there := w.nodes[n.Name]; !there || w.chance(2) {
			continue
		}
		ev := Event(Rejoined{n.Name})
		if w.chance(8) {
			ev = Lost{n.Name, "it did not come back"}
		}
		if err := w.event(ev); err != nil {
			return err
		}
	}
	return nil
}
