package jobstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// The agents of a world do what package agent does. Their processes are only numbers.

func (a *agent) report(ev job.Event) { a.reports = append(a.reports, sentEvent{ev, a.incarnation}) }

// die ends all processes at once. What the agent sent is still on its way.
func (a *agent) die() {
	a.up, a.runs, a.orders = false, nil, nil
}

// obey carries out one order that has arrived.
func (w *world) obey(a *agent) error {
	if len(a.orders) == 0 {
		return nil
	}
	i := w.pick(len(a.orders))
	order := a.orders[i]
	a.orders = slices.Delete(a.orders, i, i+1)
	switch o := order.(type) {
	case job.Prepare:
		p := job.Prepared{Node: a.node.Name, Unit: o.Unit, Attempt: o.Attempt, Port: 1024 + w.rng.IntN(60_000)}
		if w.hopeless && w.chance(20) {
			p.Port, p.Err = 0, "all ports are taken"
		}
		if p.Unable = w.unable(); p.Unable.OK() {
			w.truth.ports[questionOf(o)] = append(w.truth.ports[questionOf(o)], p.Port)
		}
		a.report(p)
	case job.Reach:
		r := job.Reached{Node: a.node.Name, Seq: o.Seq}
		if w.hopeless && w.chance(20) || w.cuts && !w.calm && len(w.truth.newest) > 0 && w.chance(3) {
			r.Err = "connection refused"
		}
		r.Unable = w.unable()
		a.report(r)
	case job.Start:
		return w.start(a, o)
	case job.Notice:
		if r := a.runs[o.Unit]; r != nil && r.attempt == o.Attempt && w.chance(2) {
			a.report(job.Ready{Node: a.node.Name, Unit: o.Unit, Attempt: o.Attempt})
		}
	case job.Stop:
		a.stop(o)
	default:
		return fmt.Errorf("%s was ordered %v", a.node.Name, o)
	}
	return nil
}

func (w *world) start(a *agent, o job.Start) error {
	old := a.runs[o.Unit]
	if old != nil && old.attempt >= o.Attempt {
		return nil
	}
	if err := w.truth.started(a, o); err != nil {
		return err
	}
	r := &run{attempt: o.Attempt, start: o}
	for _, b := range o.Group.Bundles {
		r.alive = append(r.alive, b.Rank)
	}
	r.hung, r.beats = w.hangs && !w.calm && w.chance(3), w.chance(2)
	a.runs[o.Unit] = r
	a.report(job.Started{Node: a.node.Name, Unit: o.Unit, Attempt: o.Attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}})
	return nil
}

func (a *agent) stop(o job.Stop) {
	r := a.runs[o.Unit]
	switch {
	case r == nil || r.attempt < o.Attempt:
		a.runs[o.Unit] = &run{attempt: o.Attempt, ended: true}
		a.report(job.Stopped{Node: a.node.Name, Unit: o.Unit, Attempt: o.Attempt})
	case r.attempt == o.Attempt && r.ended:
		a.report(job.Stopped{Node: a.node.Name, Unit: o.Unit, Attempt: o.Attempt})
	case r.attempt == o.Attempt:
		r.stopping = true
	}
}

// live ends a process of the node: by itself, with success or failure, or because it was stopped.
// The node reports a unit without processes as stopped.
func (w *world) live(a *agent) error {
	for id := range w.spec.Request.MaxNodes * 2 {
		r := a.runs[id]
		if r == nil || r.ended || w.chance(2) {
			continue
		}
		if len(r.alive) == 0 {
			r.ended = true
			a.report(job.Stopped{Node: a.node.Name, Unit: id, Attempt: r.attempt})
			continue
		}
		if w.hangs && !r.stopping && (r.hung || !w.calm && w.chance(10)) {
			a.report(w.stalled(a.node.Name, id, r))
			continue
		}
		i := w.rng.IntN(len(r.alive))
		e := job.Exited{
			Node: a.node.Name, Unit: id, Attempt: r.attempt, Rank: r.alive[i], Exit: w.exit(r),
			At: time.Unix(int64(w.rng.IntN(100)), 0), Lived: time.Duration(w.rng.IntN(2)) * time.Hour, Told: r.stopping,
		}
		if e.Exit.Spawn == "" && e.Exit.Signal == 0 && !e.Exit.OK() {
			e.Tail = w.words()
		}
		w.truth.exited(e)
		if e.Alike = !e.Exit.OK() && r.twins.Known(e.Failure(nil)); e.Alike {
			e.Tail = ""
		}
		r.alive = slices.Delete(r.alive, i, i+1)
		r.exits = append(r.exits, e)
		a.report(e)
	}
	return nil
}

// echo is what a rank prints when another one has failed.
const echo = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234"

// words are the last words of a failed rank.
func (w *world) words() string {
	if w.chance(2) {
		return ""
	}
	return []string{echo, "RuntimeError: CUDA error: uncorrectable ECC error encountered", "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nValueError: no"}[w.rng.IntN(3)]
}

// stalled is the agent's report about the progress of its ranks. In a wild time the report may be
// wrong, and is corrected later.
func (w *world) stalled(node string, id int, r *run) job.Stalled {
	e := job.Stalled{Node: node, Unit: id, Attempt: r.attempt}
	if !r.hung || !w.calm && w.chance(4) {
		r.hung = r.hung && w.chance(2)
		if w.chance(2) {
			return e
		}
	}
	still := r.alive
	if !w.calm && !r.beats && len(still) > 1 && w.chance(4) { // the others move
		e.Moving = 1 + w.rng.IntN(len(still)-1)
		still = still[e.Moving:]
	}
	for _, rank := range still {
		e.Ranks = append(e.Ranks, job.Still{Rank: rank, Beat: r.beats, Step: int64(w.rng.IntN(3)) - 1, Does: []string{"asleep", "stopped"}[w.rng.IntN(2)]})
	}
	return e
}

// unable is the answer of a node that cannot start a rank.
func (w *world) unable() report.Exit {
	if w.hopeless && w.chance(20) {
		return report.Exit{Code: 127, Spawn: "no such file"}
	}
	return report.Exit{}
}

func (w *world) exit(r *run) report.Exit {
	switch n := w.rng.IntN(20); {
	case r.stopping && n < 18:
		return report.Exit{Code: 143, Signal: 15}
	case w.calm || n > 3:
		return report.Exit{}
	case n == 0 && w.hopeless:
		return report.Exit{Code: 127, Spawn: "no such file"}
	default:
		return report.Exit{Code: n + 1}
	}
}

func (r *run) String() string { return fmt.Sprintf("attempt %d with ranks %v", r.attempt, r.alive) }
