// Package saves notices where ranks write checkpoints, and proves that these are complete. It looks
// at the files that the ranks' processes have open. It reads files of the user only while a
// checkpoint is being written, except that each [Watch] looks at one known directory of checkpoints
// every 10 seconds, and every second once the end of the ranks was announced.
package saves

import (
	"context"
	"path"
	"time"

	"github.com/golaunch/golaunch/agent/internal/checkpoint"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
)

const (
	// openEvery is how often the watch looks at processes that have a checkpoint open.
	openEvery = time.Second
	// restEvery is how often the watch looks at a known directory for checkpoints that were written
	// between two looks at the processes.
	restEvery = 10 * time.Second
	// patience is how long a checkpoint may be incomplete when no process writes it. Megatron
	// finishes an asynchronous checkpoint at a later step.
	patience = 10 * time.Minute
	// lastLimit bounds the look at checkpoints after the ranks have ended. answerLimit bounds each
	// answer of the disk during that look. A restart waits for both. If a notice has announced the
	// end of the ranks, the look may last until the announced deadline.
	lastLimit   = 5 * time.Second
	answerLimit = 2 * time.Second
	// lookEvery is how often the caller looks at the processes, unless the watch is in a hurry. All
	// nodes that write a checkpoint have reported it within lookEvery, plus a second for the
	// message.
	lookEvery = 5 * time.Second
	// maxFlights and maxPlaces bound how many checkpoints and directories the watch follows at a
	// time.
	maxFlights = 16
	maxPlaces  = 16
	// provers is how many nodes prove a checkpoint in a directory that all nodes share.
	provers = 8
)

// Options say what to watch.
type Options struct {
	// Base has the node, the unit and the attempt for each report.
	Base job.Saved
	// NodeRank is the rank of the node. Ranks is how many ranks the job has.
	NodeRank, Ranks int
	// Nodes is how many nodes the job has.
	Nodes int
	// Dir is where the checkpoints are, according to the user. When empty, the watch finds it out.
	// The kernel names open files by paths without links, so the watch replaces Dir by such a path.
	Dir    string
	Places *Places
	Rights *safefile.Rights
	Report func(job.Saved)
}

// Watch watches the ranks of an attempt on a node.
type Watch struct {
	Options
	looks  chan []proc.Member
	hurry  chan hurry
	cancel context.CancelFunc
	over   chan struct{}
	disk   disk

	// The fields below belong to the watch's goroutine.
	members []proc.Member
	io      map[int]uint64
	flights map[string]*flight
	// rested is when the watch last looked at a known directory, and turn counts these looks.
	rested time.Time
	turn   int
	// unresolved says that Dir may still be a path with links.
	unresolved bool
	// hurried is the newest announcement of the end of the ranks.
	hurried hurry
	// ended says that the ranks have ended.
	ended bool
}

// New starts a watch. The caller must call Stop once the ranks have exited.
func New(o Options) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{
		Options: o, looks: make(chan []proc.Member, 1), hurry: make(chan hurry, 1), cancel: cancel, over: make(chan struct{}),
		disk: disk{rights: o.Rights, found: make(chan answer, 1)},
		io:   map[int]uint64{}, flights: map[string]*flight{}, rested: time.Now(),
	}
	if w.unresolved = o.Dir != ""; w.unresolved {
		w.resolve()
	}
	go w.run(ctx)
	return w
}

// Look gives the watch the processes of the ranks. It does not wait.
func (w *Watch) Look(members []proc.Member) {
	select {
	case w.looks <- members:
	default: // the watch is behind, and gets the next processes
	}
}

// Stop reports what the ranks have saved last.
func (w *Watch) Stop() {
	w.cancel()
	<-w.over
}

func (w *Watch) run(ctx context.Context) {
	defer close(w.over)
	timer := time.NewTimer(restEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.lookLast()
			return
		case w.members = <-w.looks:
			w.scan(time.Now())
			w.hurried.looked = true
		case h := <-w.hurry:
			w.hasten(h)
		case found := <-w.disk.found:
			w.disk.pending = false
			w.heard(found, time.Now())
		case <-timer.C:
			if w.looksClosely() {
				w.scan(time.Now())
			}
		}
		now := time.Now()
		w.prove(now)
		w.rest(now)
		w.answer(now)
		if w.looksClosely() {
			timer.Reset(openEvery)
		} else {
			timer.Reset(restEvery)
		}
	}
}

// looksClosely reports whether the watch looks as often as it can.
func (w *Watch) looksClosely() bool { return len(w.flights) > 0 || !w.hurried.until.IsZero() }

// scan notes which checkpoints the processes have open. While no checkpoint is in flight, it skips
// processes that have not written since the last look.
func (w *Watch) scan(now time.Time) {
	seen := map[string]bool{}
	io := make(map[int]uint64, len(w.members))
	for _, m := range w.members {
		io[m.PID] = m.IO
		if m.IO != 0 && m.IO == w.io[m.PID] && len(w.flights) == 0 {
			continue
		}
		for _, file := range written(m.PID) {
			if dir, name, ok := w.locate(file); ok {
				seen[path.Join(dir, name)] = true
				w.begin(dir, name, now)
			}
		}
	}
	w.io = io
	for path, f := range w.flights {
		f.see(seen[path], now)
	}
}

// begin notes a checkpoint that has just been opened.
func (w *Watch) begin(dir, name string, now time.Time) {
	if at := path.Join(dir, name); w.flights[at] == nil && len(w.flights) < maxFlights {
		w.flights[at] = &flight{dir: dir, name: name, began: now, changed: now}
	}
}

func (w *Watch) event(f *flight, state job.SaveState) job.Saved {
	ev := w.Base
	ev.State, ev.Path, ev.Step = state, path.Join(f.dir, f.name), max(0, checkpoint.Step(f.name))
	return ev
}

// prove asks the disk about one checkpoint. It first asks whether other nodes see the checkpoint.
// Once no process has the checkpoint open, it asks whether it is complete.
func (w *Watch) prove(now time.Time) {
	for at, f := range w.flights {
		switch {
		case w.disk.pending:
			return
		case !f.told && !f.missed:
			dir, name := f.dir, f.name
			w.disk.ask(func() answer { return answer{dir: dir, name: name, asked: true, shared: isShared(dir)} })
		case f.distant && !f.open:
			delete(w.flights, at)
		case !f.distant && f.due(now):
			w.inspect(f)
		}
	}
}

func (w *Watch) inspect(f *flight) {
	dir, name, known, flush := f.dir, f.name, checkpoint.Known{Ranks: w.Ranks, Settled: f.settled}, !w.hurried.until.IsZero()
	w.disk.ask(func() answer {
		a := answer{dir: dir, name: name, shared: isShared(dir), finding: checkpoint.Inspect(dirFS(dir), name, known)}
		if flush && a.finding.State == checkpoint.Complete {
			if err := syncFS(dir); err != nil {
				a.finding.State, a.finding.Why = checkpoint.Unknown, err.Error()
			}
		}
		return a
	})
}

// rest looks at one of the known directories now and then.
func (w *Watch) rest(now time.Time) {
	every := restEvery
	if w.looksClosely() {
		every = openEvery
	}
	if now.Sub(w.rested) < every || len(w.flights) > 0 {
		return
	}
	w.rested = now
	if w.unresolved {
		w.resolve()
		return
	}
	if dirs := w.Places.list(); len(dirs) > 0 {
		w.turn++
		w.disk.ask(w.newest(dirs[w.turn%len(dirs)]))
	}
}

// resolve asks for the user's directory without links.
func (w *Watch) resolve() {
	dir := w.Dir
	w.disk.ask(func() answer { return answer{real: realPath(dir)} })
}

// heard processes an answer of the disk.
func (w *Watch) heard(a answer, now time.Time) {
	at := path.Join(a.dir, a.name)
	f := w.flights[at]
	switch {
	case a == answer{}: // the rights of the user are not available
		clear(w.flights)
	case a.real != "":
		w.Dir, w.unresolved = a.real, false
		w.Places.learn(a.real)
	case a.looked && w.Places.changed(a) && f == nil && len(w.flights) < maxFlights:
		w.flights[at] = &flight{dir: a.dir, name: a.name, began: now, changed: now, missed: true}
	case a.looked, f == nil:
	case a.asked:
		f.told, f.distant = true, a.shared && w.NodeRank >= provers
		if !f.distant {
			ev := w.event(f, job.SaveBegan)
			ev.Ago = now.Sub(f.began)
			w.Report(ev)
		}
	case f.missed && a.finding.Newest.Before(w.Places.since): // the checkpoint was there before the job
		w.Places.note(a)
		delete(w.flights, at)
	case a.finding.State == checkpoint.Complete && !f.open && now.Before(w.heardOfAll(f, a)):
		f.next = w.heardOfAll(f, a)
	case a.finding.State == checkpoint.Complete && !f.open:
		w.Places.note(a)
		w.complete(f, a, now)
		delete(w.flights, at)
	case f.hear(a.finding, now) > patience:
		w.Places.note(a)
		w.giveUp(f)
		delete(w.flights, at)
	}
}

// heardOfAll returns the time by which each node that writes the checkpoint has reported that. If
// each node has its own part of the checkpoint, a proof before that time would count for the parts
// of the other nodes.
func (w *Watch) heardOfAll(f *flight, a answer) time.Time {
	switch {
	case a.shared || f.missed || w.Nodes < 2 || w.ended:
		return time.Time{}
	case !w.hurried.until.IsZero():
		return f.began.Add(openEvery + time.Second)
	}
	return f.began.Add(lookEvery + time.Second)
}

// complete reports a checkpoint that is proved. Files that are much older than the beginning may be
// of an earlier checkpoint with the same name.
func (w *Watch) complete(f *flight, a answer, now time.Time) {
	began, ended := f.began, a.finding.Newest
	if ended.After(now) || ended.Before(began) && !f.missed {
		ended = now
	}
	if old := a.finding.Oldest; f.missed || old.Before(began) && old.After(began.Add(-time.Minute)) {
		began = old
	}
	ev := w.event(f, job.SaveComplete)
	ev.Format, ev.Bytes, ev.Shared = a.finding.Format, a.finding.Bytes, a.shared && !f.settled
	ev.Ago, ev.Took = now.Sub(ended), max(0, ended.Sub(began))
	w.Report(ev)
}

// giveUp reports a checkpoint that is not proved.
func (w *Watch) giveUp(f *flight) {
	if f.missed || f.distant {
		return // no rank was seen to write it
	}
	state := job.SavePartial
	if f.last.State == checkpoint.Unknown {
		state = job.SaveUnknown
	}
	ev := w.event(f, state)
	ev.Why = f.last.Why
	w.Report(ev)
}

// lookLast looks once more at all checkpoints, since the ranks have ended.
func (w *Watch) lookLast() {
	w.ended = true
	end := time.Now().Add(max(lastLimit, time.Until(w.hurried.until)))
	wait := func() bool {
		if !w.disk.pending {
			return true
		}
		left := time.Until(end)
		if w.hurried.until.IsZero() {
			left = min(left, answerLimit-time.Since(w.disk.since))
		}
		a, ok := w.disk.take(time.After(left))
		if ok {
			w.heard(a, time.Now())
		}
		return ok
	}
	if !wait() {
		return
	}
	for _, p := range w.Places.list() {
		if w.disk.ask(w.newest(p)); !wait() {
			return
		}
	}
	for range 2 { // the second look shows whether anything changed after the first
		for _, f := range w.flights {
			if f.open = false; f.distant {
				continue
			}
			if w.inspect(f); !wait() {
				return
			}
		}
	}
	for _, f := range w.flights {
		w.giveUp(f)
	}
}
