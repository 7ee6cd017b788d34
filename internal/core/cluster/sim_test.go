package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/snapshot"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// sim is a cluster with its coordinator: it keeps a log, carries out actions on simulated nodes,
// and starts the coordinator anew from the log. It also keeps records of its own, from the steps
// alone, of the nodes that each job holds.
type sim struct {
	state *State
	// past is the newest snapshot, nil at first. log has the events since then.
	past  []byte
	log   []told
	nodes map[string]placement.Node
	jobs  []*record
	// due are answers to actions that are on their way.
	due []Happened
	// drained has the nodes that were ordered to drain. A node's value is true once it may leave.
	drained map[string]bool
	limits  Limits
	// at is the time. passed is the time of nodes by kind. Time that the clock shows twice, because
	// it was set back, counts once.
	at     time.Time
	passed map[string]charge.Time
}

// record is a job and its live processes.
type record struct {
	Spec
	// steps counts the job's steps.
	steps int
	held  map[string]placement.Node
	// leaving are the nodes that the job must give up.
	leaving map[string]bool
	// runs has the starts whose processes live, by node and unit.
	runs map[place]job.Start
	// known are the newest attempts that nodes know.
	known   map[place]int
	result  *report.Result
	granted *placement.Plan
	told    string
	// yielding says that the job is being preempted, and still holds nodes. yields says that the
	// preemption began with the newest outcome. moved says that the job was ever preempted.
	yielding, yields, moved bool
	// gifts counts the nodes that the newest outcome gave the job. gave counts the nodes that the
	// job gave back in exchange for others.
	gifts, gave int
	// exclusion is the newest alarm that ends the exclusion of its nodes.
	exclusion int
	// gpuTime is the time of the GPUs that the job held, in milliseconds.
	gpuTime int64
}

type place struct {
	node string
	unit int
}

func newSim() *sim {
	return &sim{
		state: New(), nodes: map[string]placement.Node{}, drained: map[string]bool{}, at: time.UnixMilli(1_790_000_000_000).UTC(), passed: map[string]charge.Time{},
	}
}

// told is an event with its time, and the nodes that could leave after the event, in order.
type told struct {
	at    time.Time
	what  Event
	leave []string
}

func (m *sim) job(id string) *record {
	if i := slices.IndexFunc(m.jobs, func(r *record) bool { return r.Job.ID == id }); i >= 0 {
		return m.jobs[i]
	}
	return nil
}

// step steps the cluster and performs the resulting actions.
func (m *sim) step(ev Event) (Outcome, error) {
	switch ev := ev.(type) {
	case Submitted:
		m.jobs = append(m.jobs, &record{Spec: ev.Spec, held: map[string]placement.Node{}, leaving: map[string]bool{}, runs: map[place]job.Start{}, known: map[place]int{}})
	case Limited:
		m.limits = ev.Limits
	case Joined:
		// Each entry of a log is read anew, so no two have GPUs in common.
		ev.Node.GPUs = slices.Clone(ev.Node.GPUs)
		m.nodes[ev.Node.Name] = ev.Node
		return m.steps(ev)
	case Freed:
		if n, there := m.nodes[ev.Node]; there {
			n.GPUs, _ = job.Freed(ev).Free(n.GPUs)
			m.nodes[ev.Node] = n
		}
	case Lost:
		m.die(ev.Node)
	case Drain:
		if _, there := m.nodes[ev.Node]; there {
			m.drained[ev.Node] = m.drained[ev.Node] || false
		}
	case Happened:
		if e, ok := ev.Event.(job.Exited); ok && !m.state.Weighs(ev.Job, e) {
			e.Tail = ""
			return m.steps(Happened{ev.Job, e})
		}
	default: // other actions change no records
	}
	return m.steps(ev)
}

func (m *sim) steps(ev Event) (Outcome, error) {
	var before []byte
	if h, ok := ev.(Happened); ok && (isTimer(h.Event) || len(m.log)%8 == 0) { // a snapshot is expensive
		before = snapshot.Encode(m.state)
	}
	out := m.state.Step(m.at, ev)
	switch {
	case !out.Stale:
		m.log = append(m.log, told{m.at, ev, out.Leave})
	case before != nil && !bytes.Equal(before, snapshot.Encode(m.state)):
		return out, fmt.Errorf("%v should change nothing, but does", ev)
	}
	return out, m.carryOut(out)
}

// isTimer reports whether an event is the answer to a timer. Such an answer is often stale.
func isTimer(ev job.Event) bool {
	_, out := ev.(job.TimedOut)
	return out
}

func (m *sim) die(node string) {
	delete(m.nodes, node)
	delete(m.drained, node)
	for _, r := range m.jobs {
		maps.DeleteFunc(r.runs, func(p place, _ job.Start) bool { return p.node == node })
		maps.DeleteFunc(r.known, func(p place, _ int) bool { return p.node == node })
	}
	m.due = slices.DeleteFunc(m.due, func(h Happened) bool { return nodeOf(h.Event) == node })
}

func nodeOf(ev job.Event) string {
	switch ev := ev.(type) {
	case job.Prepared:
		return ev.Node
	case job.Reached:
		return ev.Node
	case job.Started:
		return ev.Node
	case job.Exited:
		return ev.Node
	case job.Ready:
		return ev.Node
	case job.Stopped:
		return ev.Node
	}
	return ""
}

func (m *sim) carryOut(out Outcome) error {
	for _, r := range m.jobs {
		r.gifts, r.gave, r.yields = 0, 0, false
	}
	for _, st := range out.Steps {
		r := m.job(st.Job)
		r.steps++
		if st.Granted != nil {
			r.granted = st.Granted
		}
		if q := m.state.jobs[st.Job].queue; strings.Contains(st.Reason, "the job grows") && len(q.waiting) > 0 {
			return fmt.Errorf("job %s grows while %s waits", st.Job, q.waiting[0].Job.ID)
		}
		if err := m.book(r, st.Event); err != nil {
			return fmt.Errorf("job %s: %v: %w", st.Job, st.Event, err)
		}
		for _, a := range st.Actions {
			if err := m.act(r, a); err != nil {
				return fmt.Errorf("job %s: %v: %w", st.Job, a, err)
			}
		}
	}
	for _, r := range slices.Backward(m.jobs) { // the jobs within a reservation before the reservation
		for name := range r.leaving {
			if !m.state.jobs[r.Job.ID].state.Has(name) && !m.uses(r, name) {
				delete(r.leaving, name)
				delete(r.held, name)
			}
		}
		r.yielding = r.yielding && len(r.held) > 0
	}
	for _, name := range out.Leave {
		if _, asked := m.drained[name]; !asked || len(m.holders(name)) > 0 {
			return fmt.Errorf("%s may leave, asked %v, held by %d", name, asked, len(m.holders(name)))
		}
		m.drained[name] = true
	}
	return nil
}

// uses reports whether a job within a reservation holds a node of the reservation.
func (m *sim) uses(reservation *record, node string) bool {
	return slices.ContainsFunc(m.jobs, func(r *record) bool {
		_, holds := r.held[node]
		return r.Within == reservation.Job.ID && holds
	})
}

// book updates the records.
func (m *sim) book(r *record, ev job.Event) error {
	switch ev := ev.(type) {
	case job.Joined:
		if r.leaving[ev.Node.Name] { // the job has given the node up in the same step
			delete(r.leaving, ev.Node.Name)
			delete(r.held, ev.Node.Name)
		}
		_, there := m.nodes[ev.Node.Name]
		if _, draining := m.drained[ev.Node.Name]; !r.OnlyJob && (!there || draining) {
			return fmt.Errorf("a node that is gone or drained")
		}
		if r.yielding { // the job has given up all nodes in the same step
			maps.DeleteFunc(r.held, func(name string, _ placement.Node) bool { return r.leaving[name] })
			clear(r.leaving)
			if r.yielding = false; len(r.held) > 0 || m.state.jobs[r.Job.ID].yields != nil {
				return fmt.Errorf("it is being preempted, and has not given up all nodes")
			}
		}
		if _, holds := r.held[ev.Node.Name]; holds && !r.OnlyJob {
			return fmt.Errorf("it holds that")
		}
		r.held[ev.Node.Name] = ev.Node
		r.gifts++
	case job.Lost:
		delete(r.held, ev.Node)
		return nil
	case job.Draining:
		r.leaving[ev.Node] = true
		return m.giveBack(r, ev)
	case job.Queued:
		if ev.Why == "" {
			return fmt.Errorf("told nothing")
		}
		r.told = ev.Why
		return nil
	default: // it is about the job alone
		return nil
	}
	r.told = ""
	return nil
}

func (m *sim) act(r *record, a job.Action) error {
	will := func(ev job.Event) { m.due = append(m.due, Happened{r.Job.ID, ev}) }
	switch a := a.(type) {
	case job.Prepare:
		will(job.Prepared{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt, Port: 1024})
	case job.Reach:
		will(job.Reached{Node: a.Node, Seq: a.Seq})
	case job.Notice:
		will(job.Ready{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt})
	case job.Start:
		p := place{a.Group.Node.Name, a.Unit}
		if err := m.mayStart(r, a); err != nil {
			return err
		}
		if attempt, known := r.known[p]; !known || attempt < a.Attempt {
			r.runs[p], r.known[p] = a, a.Attempt
			will(job.Started{Node: p.node, Unit: a.Unit, Attempt: a.Attempt})
		}
	case job.Stop:
		p := place{a.Node, a.Unit}
		delete(r.runs, p)
		r.known[p] = a.Attempt
		will(job.Stopped{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt})
	case job.Wait:
		will(job.Elapsed{Unit: a.Unit, Attempt: a.Attempt})
	case job.Finish:
		if r.result != nil && *r.result != a.Result && r.result.Reason != a.Result.Reason {
			return fmt.Errorf("it has ended otherwise: %+v", *r.result)
		}
		if len(r.runs) > 0 || m.open(r) > 0 {
			return fmt.Errorf("%d processes and %d jobs live", len(r.runs), m.open(r))
		}
		r.result = &a.Result
		clear(r.held)
	case job.Alarm:
		switch a.Kind {
		case job.AlarmExclusion:
			r.exclusion = a.Seq
		case job.AlarmGrow, job.AlarmDeparture, job.AlarmLastCall:
			will(job.TimedOut{Kind: a.Kind, Seq: a.Seq})
		default: // a limit on waiting
		}
	}
	return nil
}

// open counts the jobs within a reservation that have not ended.
func (m *sim) open(r *record) int {
	open := 0
	for _, other := range m.jobs {
		if other.Within == r.Job.ID && other.result == nil {
			open++
		}
	}
	return open
}

// mayStart checks that ranks start only on GPUs that their job holds and that no stranger holds.
func (m *sim) mayStart(r *record, a job.Start) error {
	share, ok := r.held[a.Group.Node.Name]
	if r.result != nil || r.Reserve || !ok {
		return fmt.Errorf("it has ended, is a reservation, or does not hold the node")
	}
	for _, b := range a.Group.Bundles {
		if b.GPU != nil && !has(share.GPUs, b.GPU.Index) {
			return fmt.Errorf("gpu %d is not its own", b.GPU.Index)
		}
		if b.GPU != nil && m.nodes[a.Group.Node.Name].GPUs[b.GPU.Index].HeldBy != "" {
			return fmt.Errorf("gpu %d is held by a stranger", b.GPU.Index)
		}
	}
	return nil
}

func (m *sim) holders(node string) []*record {
	var list []*record
	for _, r := range m.jobs {
		if _, ok := r.held[node]; ok {
			list = append(list, r)
		}
	}
	return list
}

// end makes all processes of a job on a node end with a code and last words.
func (m *sim) end(r *record, p place, code int, tail string) {
	a := r.runs[p]
	delete(r.runs, p)
	for _, b := range a.Group.Bundles {
		m.due = append(m.due, Happened{r.Job.ID, job.Exited{
			Node: p.node, Unit: p.unit, Attempt: a.Attempt, Rank: b.Rank, Exit: report.Exit{Code: code}, Tail: tail,
		}})
	}
	m.due = append(m.due, Happened{r.Job.ID, job.Stopped{Node: p.node, Unit: p.unit, Attempt: a.Attempt}})
}

// crash starts the coordinator anew from its log. The new state must equal the old one to the last
// byte.
func (m *sim) crash() error {
	again := New()
	if m.past != nil {
		again = &State{}
		if err := snapshot.Decode(m.past, again); err != nil {
			return err
		}
	}
	for _, e := range m.log {
		if out := again.Step(e.at, e.what); !slices.Equal(out.Leave, e.leave) {
			return fmt.Errorf("the log lets %v leave, not %v", out.Leave, e.leave)
		}
	}
	if !bytes.Equal(snapshot.Encode(again), snapshot.Encode(m.state)) {
		return errors.New("the log gives another state")
	}
	m.state = again
	return nil
}

// compact replaces the log with a snapshot.
func (m *sim) compact() error {
	m.past, m.log = snapshot.Encode(m.state), nil
	return snapshot.Check(m.state)
}

// wait lets time pass.
func (m *sim) wait(d time.Duration) {
	m.at = m.at.Add(d)
	ms := max(0, d.Milliseconds())
	for _, n := range m.nodes {
		all := m.passed[kindOf(n)]
		all.Add(charge.Time{Nodes: ms, GPUs: ms * int64(len(n.GPUs))})
		m.passed[kindOf(n)] = all
	}
	for _, r := range m.jobs {
		for _, share := range r.held {
			r.gpuTime += ms * int64(len(share.GPUs))
		}
	}
}

// kindOf returns the kind of a node: "odd" or "even", by the number in its name.
func kindOf(n placement.Node) string {
	if strings.ContainsAny(n.Name[len(n.Name)-1:], "13579") {
		return "odd"
	}
	return "even"
}

func machineOf(i, gpus, cpus int) placement.Node {
	n := placement.Node{Name: fmt.Sprintf("n%d", i), Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), CPUs: cpus}
	for g := range gpus {
		n.GPUs = append(n.GPUs, placement.GPU{Index: g})
	}
	return n
}
