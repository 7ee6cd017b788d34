package rendezvous

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/jobstate"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/launcher/report"
)

// rankOf names a rank of a job. exitOf names the exit of a rank in one attempt, with the numbers
// that journals use.
type (
	rankOf struct {
		job  string
		rank int
	}
	exitOf struct {
		job           string
		unit, attempt int
		rank          int
	}
)

// life is the newest attempt of a rank.
type life struct {
	p       *proc
	attempt int
	alive   bool
	code    int
}

// exitReport counts an agent's reports of an exit.
type exitReport struct {
	p    *proc
	said int
}

// truth knows which ranks really run, and where. It compares this with the coordinator's decisions.
type truth struct {
	t     *testing.T
	seed  uint64
	began time.Time

	mu      sync.Mutex
	lives   map[rankOf]life
	reports map[exitOf]exitReport
	history []string
	// told are the events of each job. last is the index in the log up to which the previous
	// coordinator came.
	told   map[string][]told
	last   uint64
	failed bool
}

func newTruth(t *testing.T, seed uint64) *truth {
	return &truth{t: t, seed: seed, began: time.Now(), lives: map[rankOf]life{}, reports: map[exitOf]exitReport{}, told: map[string][]told{}}
}

// tell adds a line to the history of a world.
func (w *truth) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

func (w *truth) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%9.2fh  ", time.Since(w.began).Hours())+fmt.Sprintf(format, args...))
}

// fail reports the first violation in a world and ends the test. It ignores later violations, which
// may follow from the first.
func (w *truth) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violated(format, args...)
}

func (w *truth) violated(format string, args ...any) {
	w.note("VIOLATION: "+format, args...)
	if w.failed {
		return
	}
	w.failed = true
	last := w.history[max(0, len(w.history)-60):]
	w.t.Errorf("%s\nsee go test -run '^TestWorld$' -v ./rendezvous -seed=%d\n%s", fmt.Sprintf(format, args...), w.seed, strings.Join(last, "\n"))
}

// born checks that no two attempts of a rank run at the same time, and that attempts start in
// order.
func (w *truth) born(p *proc, id string, o job.Start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range o.Group.Bundles {
		rank := rankOf{id, b.Rank}
		switch old := w.lives[rank]; {
		case old.alive:
			w.violated("rank %d of %s starts attempt %d on %s while attempt %d lives on %s", b.Rank, id, o.Attempt, p.node.Name, old.attempt,
				old.p.node.Name)
		case old.p != nil && old.attempt >= o.Attempt:
			w.violated("rank %d of %s starts attempt %d after attempt %d", b.Rank, id, o.Attempt, old.attempt)
		}
		w.lives[rank] = life{p: p, attempt: o.Attempt, alive: true}
	}
}

// died returns false for a rank that was already dead.
func (w *truth) died(p *proc, rank rankOf, attempt, code int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[rank]
	if !l.alive || l.p != p || l.attempt != attempt {
		return false
	}
	l.alive, l.code = false, code
	w.lives[rank] = l
	return true
}

// living returns the living ranks of a process or, if p is nil, of all processes.
func (w *truth) living(p *proc) map[rankOf]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[rankOf]int{}
	for rank, l := range w.lives {
		if l.alive && (p == nil || l.p == p) {
			all[rank] = l.attempt
		}
	}
	return all
}

// reported counts the agents' reports of the end of a rank.
func (w *truth) reported(p *proc, id string, ev any) {
	if e, ok := ev.(job.Exited); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		exit := exitOf{id, e.Unit, e.Attempt, e.Rank}
		w.reports[exit] = exitReport{p, w.reports[exit].said + 1}
	}
}

// lostNode checks that no rank lives on a node that is counted as lost.
func (w *truth) lostNode(name, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rank, l := range w.lives {
		if l.alive && l.p.node.Name == name {
			w.violated("%s is counted as lost (%s), and attempt %d of rank %d of %s lives there", name, why, l.attempt, rank.rank, rank.job)
		}
	}
}

// buried checks that no rank of an ended job lives.
func (w *truth) buried(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rank, l := range w.lives {
		if rank.job == id && l.alive {
			w.violated("job %s is over, and attempt %d of its rank %d lives on %s", id, l.attempt, rank.rank, l.p.node.Name)
		}
	}
}

// stepped stores a job's event with its index in the log.
func (w *truth) stepped(index uint64, st replica.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[st.Job] = append(w.told[st.Job], told{index, st.Event})
}

// resumed removes the events that the log has lost.
func (w *truth) resumed(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index > w.last {
		w.violated("a coordinator goes on at entry %d, and the one before it stood at %d", index, w.last)
	}
	for id, all := range w.told {
		w.told[id] = slices.DeleteFunc(all, func(t told) bool { return t.index > index })
	}
}

// told is an event of a job.
type told struct {
	index uint64
	event job.Event
}

// judge compares a job's result with what really happened, and the job's events with the agents'
// reports.
func (w *truth) judge(s replica.Submission, takeovers int, r report.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []job.Event
	for _, t := range w.told[s.Job.ID] {
		events = append(events, t.event)
	}
	w.complete(s, events)
	w.once(s.Job.ID, events, takeovers)
	for rank, l := range w.lives {
		if rank.job == s.Job.ID && r.Code == 0 && l.code != 0 {
			w.violated("job %s has succeeded, and rank %d ended with %d in its newest attempt %d", s.Job.ID, rank.rank, l.code, l.attempt)
		}
	}
	if ranks := s.Job.Request.MinNodes * s.Job.Request.PerNode[0]; r.Code == 0 && w.ranks(s.Job.ID) < ranks {
		w.violated("job %s has succeeded with %d of %d ranks", s.Job.ID, w.ranks(s.Job.ID), ranks)
	}
}

func (w *truth) ranks(id string) (n int) {
	for rank := range w.lives {
		if rank.job == id {
			n++
		}
	}
	return n
}

// complete replays the events of a job. It checks that the ranks of a gang start only when all
// nodes of the gang are there.
func (w *truth) complete(s replica.Submission, events []job.Event) {
	there := map[string]bool{}
	state := jobstate.New(s.Job)
	for _, ev := range events {
		switch ev := ev.(type) {
		case job.Joined:
			there[ev.Node.Name] = true
		case job.Lost:
			delete(there, ev.Node)
		default: // other events say nothing about nodes
		}
		actions, _ := state.Step(ev)
		for _, a := range actions {
			if _, starts := a.(job.Start); starts && s.Job.Restart == job.RestartJob && len(there) < s.Job.Request.MinNodes {
				w.violated("%s starts with %d of %d nodes", s.Job.ID, len(there), s.Job.Request.MinNodes)
			}
		}
	}
}

// once checks that the job received each exit at most as often as an agent reported it. After a
// takeover, agents repeat the reports that the coordinator had not acknowledged.
func (w *truth) once(id string, events []job.Event, takeovers int) {
	heard := map[exitOf]int{}
	for _, ev := range events {
		if e, ok := ev.(job.Exited); ok {
			heard[exitOf{id, e.Unit, e.Attempt, e.Rank}]++
		}
	}
	for exit, r := range w.reports {
		if n := heard[exit]; exit.job == id && (n > r.said*(1+takeovers) || n == 0 && r.p.reliable()) {
			w.violated("the end of %+v was sent %d times and received %d times", exit, r.said, n)
		}
	}
}

// home returns the process that a rank belongs to.
func (w *truth) home(rank rankOf) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[rank].p
}
