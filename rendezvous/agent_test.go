package rendezvous

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// agent is a scripted agent. It carries out orders at once. exit says whether, and with which code,
// its ranks end in an attempt. Ranks for which exit returns false run until they are stopped.
type agent struct {
	*session.Session
	w     *world
	cable *cable
	exit  func(attempt int) (code int, ends bool)
	done  chan struct{}

	mu     sync.Mutex
	starts []job.Start
	jobs   map[string]*share
	// finish is the newest result. finished has the results of all jobs.
	finish   *job.Finish
	finished map[string]report.Result
	signals  []string
	stops    []job.Stop
	notices  []job.Notice
	cohorts  []cohortHeard
	// ignoresStop says that the agent's ranks ignore a stop. lost says that the agent never finds
	// out whether it can reach the job's master. barred says why it cannot reach the master.
	ignoresStop, lost bool
	barred            string
	// tail is the last output of the agent's ranks.
	tail string
	left string
	// words are the agent's answers to questions. If words is nil, the agent does not answer.
	words atomic.Pointer[chan string]
	end   time.Time
	// books has the output of the agent's ranks, by job.
	books map[string]*book
}

// cohortHeard is a cohort, and when the node of a member received it.
type cohortHeard struct {
	wire.Cohort
	at time.Time
}

// share is what a scripted agent knows about one job: its task and the newest attempt of each unit.
type share struct {
	task  string
	units map[int]*unit
}

// unit is one attempt. said are its reports. asked are earlier attempts whose end the coordinator
// asks the agent to report.
type unit struct {
	job.Start
	alive bool
	said  []job.Event
	asked []int
}

func forever(int) (int, bool) { return 0, false }

func success(int) (int, bool) { return 0, true }

func (w *world) join(i int, exit func(int) (int, bool)) *agent { return w.joinAs(node(i), exit) }

func (w *world) joinAs(n placement.Node, exit func(int) (int, bool)) *agent {
	w.t.Helper()
	return w.joinWith(session.Options{Node: n}, exit, map[string]*share{})
}

// inPlaceOf returns an agent that adopts the ranks of a dead agent. A keeper still holds the dead
// agent's connections.
func (w *world) inPlaceOf(a *agent) *agent {
	w.t.Helper()
	a.cable.cut()
	a.mu.Lock()
	jobs := a.jobs
	a.jobs = map[string]*share{}
	a.mu.Unlock()
	return w.joinWith(session.Options{Node: a.Session.Node, Former: a.Membership()}, a.exit, jobs)
}

func (w *world) joinWith(o session.Options, exit func(int) (int, bool), jobs map[string]*share) *agent {
	w.t.Helper()
	c := newCable(w.connect)
	if o.Target == "" {
		o.Target, o.Dial, o.Proof, o.Warn = "head:1", c.connect, c.proof, w.warn
		if directly {
			o.Connect = c.over(w.coordinator)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*lease)
	defer cancel()
	s, err := session.Join(ctx, o)
	if err != nil {
		w.t.Fatalf("%v\n%s\n%s", err, strings.Join(w.decided(), "\n"), strings.Join(w.warnings, "\n"))
	}
	a := &agent{
		Session: s, w: w, cable: c, exit: exit, done: make(chan struct{}),
		jobs: jobs, finished: map[string]report.Result{}, books: map[string]*book{},
	}
	go a.run()
	w.t.Cleanup(func() {
		a.Close("the test is over")
		<-a.done
	})
	return a
}

func (a *agent) run() {
	defer close(a.done)
	for o := range a.Orders() {
		if why := a.do(o); why != "" {
			a.Close(why)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = time.Now()
	for id := range a.jobs {
		a.kill(id)
	}
}

// do obeys an order. It returns the reason if the agent must leave.
func (a *agent) do(o wire.Order) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch do := o.Do.(type) {
	case wire.Assign:
		a.share(o.Job).task = string(do.Task)
	case job.Prepare:
		a.Report(o.Job, job.Prepared{Unit: do.Unit, Attempt: do.Attempt, Port: 4000})
	case job.Reach:
		if !a.lost {
			a.Report(o.Job, job.Reached{Seq: do.Seq, Err: a.barred})
		}
	case job.Start:
		a.starts = append(a.starts, do)
		a.start(o.Job, do)
	case job.Notice:
		a.notices = append(a.notices, do)
	case wire.Cohort:
		a.cohorts = append(a.cohorts, cohortHeard{do, time.Now()})
	case job.Stop:
		a.stops = append(a.stops, do)
		if !a.ignoresStop {
			a.stop(o.Job, do)
		}
	case job.Finish:
		a.finish, a.finished[o.Job] = &do, do.Result
		a.kill(o.Job)
		a.book(o.Job).end()
		delete(a.jobs, o.Job)
	case wire.Restate:
		for id, s := range a.jobs {
			a.Report(id, wire.Opened{})
			for _, u := range s.units {
				u.restate(a, id)
			}
		}
		a.Report("", wire.Restated{})
	case wire.Signal:
		a.signals = append(a.signals, fmt.Sprintf("%s:%d", o.Job, do.Number))
	case wire.Leave:
		a.left = do.Why
	case wire.Ask:
		next := a.book(o.Job).reader(do.Logs)
		if do.About != wire.AboutLogs {
			next = a.replies()
		}
		go func() {
			if err := session.Deliver(a.w.t.Context(), do, next); err != nil && !session.Unread(err) {
				a.w.t.Errorf("Deliver: %v", err)
			}
		}()
	}
	return a.left
}

func (a *agent) share(id string) *share {
	if a.jobs[id] == nil {
		a.jobs[id] = &share{units: map[int]*unit{}}
	}
	return a.jobs[id]
}

func (a *agent) start(id string, o job.Start) {
	units := a.share(id).units
	switch u := units[o.Unit]; {
	case u == nil || u.Attempt < o.Attempt:
		u = &unit{Start: o, alive: true}
		units[o.Unit] = u
		a.w.born(id, a.Node.Name, u)
		u.say(a, id, job.Started{Unit: o.Unit, Attempt: o.Attempt})
		if code, ends := a.exit(o.Attempt); ends {
			a.over(id, u, code)
		}
	case u.Attempt == o.Attempt:
		u.restate(a, id)
	default:
		u.outlived(a, id, o.Attempt)
	}
}

// outlived reports the end of an earlier attempt, once u has ended.
func (u *unit) outlived(a *agent, id string, attempt int) {
	if u.alive {
		u.asked = append(u.asked, attempt)
		return
	}
	a.Report(id, job.Stopped{Unit: u.Unit, Attempt: attempt})
}

func (a *agent) stop(id string, o job.Stop) {
	units := a.share(id).units
	switch u := units[o.Unit]; {
	case u == nil || u.Attempt < o.Attempt:
		u = &unit{Start: job.Start{Unit: o.Unit, Attempt: o.Attempt}}
		units[o.Unit] = u
		a.over(id, u, 0)
	case u.Attempt > o.Attempt:
		u.outlived(a, id, o.Attempt)
	case u.alive:
		a.over(id, u, 143)
	}
}

// over ends the ranks of an attempt, and reports that.
func (a *agent) over(id string, u *unit, code int) {
	a.w.died(id, a.Node.Name, u)
	for _, b := range u.Group.Bundles {
		u.say(a, id, job.Exited{Unit: u.Unit, Attempt: u.Attempt, Rank: b.Rank, Exit: report.Exit{Code: code}, At: time.Now(), Tail: a.tail})
	}
	u.say(a, id, job.Stopped{Unit: u.Unit, Attempt: u.Attempt})
	for _, attempt := range u.asked {
		u.outlived(a, id, attempt)
	}
}

func (u *unit) say(a *agent, id string, ev job.Event) {
	u.said = append(u.said, ev)
	a.Report(id, ev)
}

func (u *unit) restate(a *agent, id string) {
	for _, ev := range u.said {
		a.Report(id, ev)
	}
}

// kill ends all ranks of a job. The agent does not report that.
func (a *agent) kill(id string) {
	if s := a.jobs[id]; s != nil {
		for _, u := range s.units {
			a.w.died(id, a.Node.Name, u)
		}
	}
}

// die acts as if SIGKILL had ended the agent.
func (a *agent) die() {
	a.cable.unreachable.Store(true)
	a.mu.Lock()
	for id := range a.jobs {
		a.kill(id)
	}
	a.mu.Unlock()
	a.cable.testify()
}

// exitAll lets the ranks of an attempt of the only job exit.
func (a *agent) exitAll(attempt, code int) { a.exitJob("j1", attempt, code) }

func (a *agent) exitJob(id string, attempt, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.share(id).units {
		if u.Attempt == attempt && u.alive {
			a.over(id, u, code)
		}
	}
}

func (a *agent) attempts() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.starts)
}

// runs returns the jobs that run on this node, each with its attempt: "a0 b2".
func (a *agent) runs() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for _, id := range slices.Sorted(maps.Keys(a.jobs)) {
		for _, u := range a.jobs[id].units {
			if u.alive {
				list = append(list, id+strconv.Itoa(u.Attempt))
			}
		}
	}
	return strings.Join(list, " ")
}

// born and died check, over all agents of a world, that no rank runs twice at a time, and that no
// two ranks use one GPU.
func (w *world) born(id, node string, u *unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range u.Group.Bundles {
		if b.GPU != nil {
			gpu := [2]string{node, b.GPU.UUID}
			if other := w.lives[gpu]; other != "" {
				w.t.Errorf("rank %d of %s starts on %s of %s, and so does one of %s", b.Rank, id, b.GPU.UUID, node, other)
			}
			w.lives[gpu] = id
		}
		rank := [2]string{id, strconv.Itoa(b.Rank)}
		if other := w.lives[rank]; other != "" {
			w.t.Errorf("rank %d of %s starts attempt %d on %s and lives on %s", b.Rank, id, u.Attempt, node, other)
		}
		w.lives[rank] = node
		w.begun[rank]++
	}
}

func (w *world) died(id, node string, u *unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u.alive {
		u.alive = false
		for _, b := range u.Group.Bundles {
			delete(w.lives, [2]string{id, strconv.Itoa(b.Rank)})
			if b.GPU != nil {
				delete(w.lives, [2]string{node, b.GPU.UUID})
			}
		}
	}
}

// births returns how often a rank of a job was started.
func (w *world) births(id string, rank int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun[[2]string{id, strconv.Itoa(rank)}]
}

// book is the output of a job's ranks on one node, or on all nodes that share a file system.
type book struct {
	mu    sync.Mutex
	files map[report.LogPosition]string // Offset 0
	over  bool
	more  chan struct{}
	// page bounds a chunk, so that a short text has many chunks.
	page int
}

func (a *agent) book(id string) *book {
	if a.books[id] == nil {
		a.books[id] = newBook()
	}
	return a.books[id]
}

func newBook() *book {
	return &book{files: map[report.LogPosition]string{}, more: make(chan struct{}), page: 4}
}

// write adds text to the output of a rank in attempt 0.
func (a *agent) write(id string, rank int, text string) {
	a.mu.Lock()
	b := a.book(id)
	a.mu.Unlock()
	b.write(report.LogPosition{Rank: rank, Stream: 1}, text)
}

func (b *book) write(file report.LogPosition, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[file] += text
	close(b.more)
	b.more = make(chan struct{})
}

func (b *book) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	close(b.more)
	b.more = make(chan struct{})
}

// replies answers a question that is not about logs. The answer has each word that the test gives
// the agent, until the test closes words.
func (a *agent) replies() func(context.Context) (wire.Answer, error) {
	return func(ctx context.Context) (wire.Answer, error) {
		var words chan string
		if given := a.words.Load(); given != nil {
			words = *given
		}
		select {
		case word, more := <-words:
			if !more {
				return wire.Answer{}, io.EOF
			}
			return wire.Answer{Facts: []byte(word)}, nil
		case <-ctx.Done():
			return wire.Answer{}, ctx.Err()
		}
	}
}

func (b *book) reader(f report.LogFilter) func(context.Context) (wire.Answer, error) {
	at := map[report.LogPosition]int64{}
	for _, p := range f.From {
		file := p
		file.Offset = 0
		at[file] = p.Offset
	}
	return func(ctx context.Context) (wire.Answer, error) {
		for {
			chunk, more, err := b.turn(at, f.Follow)
			if more == nil {
				return wire.Answer{Chunk: &chunk}, err
			}
			select {
			case <-more:
			case <-ctx.Done():
				return wire.Answer{}, ctx.Err()
			}
		}
	}
}

// turn returns the next chunk. If there is none yet, more is closed when there is one. The error is
// io.EOF if no chunk will follow.
func (b *book) turn(at map[report.LogPosition]int64, follow bool) (_ report.LogChunk, more chan struct{}, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byRank := func(a, b report.LogPosition) int { return cmp.Compare(a.Rank, b.Rank) }
	for _, file := range slices.SortedFunc(maps.Keys(b.files), byRank) {
		if text := b.files[file][at[file]:]; text != "" {
			chunk := report.LogChunk{LogPosition: file, Data: []byte(text[:min(len(text), b.page)])}
			chunk.Offset = at[file]
			at[file] += int64(len(chunk.Data))
			return chunk, nil, nil
		}
	}
	if b.over || !follow {
		return report.LogChunk{}, nil, io.EOF
	}
	return report.LogChunk{}, b.more, nil
}
