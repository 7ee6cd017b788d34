package rendezvous

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// proc is an agent process with its guardian.
type proc struct {
	*machine
	*session.Session
	cable *cable
	inbox chan func()
	// dead is closed when the process is killed. over is closed when it does nothing more.
	dead, over chan struct{}
	guardian   *time.Timer
	dialled    time.Time
	leaving    bool
	jobs       map[string]map[int]*simUnit
}

// simUnit is the newest attempt of the ranks of a job that restart together, as the agent knows it.
type simUnit struct {
	attempt int
	told    bool
	left    map[int]bool
	said    []job.Event
	asked   []int
}

// clock stands still while the agent is paused.
func (p *proc) clock() time.Duration {
	p.mu.Lock()
	wake := p.wake
	p.mu.Unlock()
	if wake != nil {
		select {
		case <-wake:
		case <-p.dead:
		case <-p.s.ctx.Done():
		}
	}
	return time.Since(p.s.began)
}

var errDead = errors.New("this agent is dead")

// dial hangs while the network is cut, and waits before each further attempt. Like all times here,
// this wait is scaled to the lease.
func (p *proc) dial(ctx context.Context) (net.Conn, error) {
	if again := time.Since(p.dialled); !p.dialled.IsZero() && again < simLease/8 {
		p.rest(simLease/8 - again)
	}
	p.dialled = time.Now()
	for {
		p.clock()
		p.mu.Lock()
		cut, changed := p.cut, p.changed
		p.mu.Unlock()
		if !cut && p.s.up.Load() {
			return p.cable.connect(context.WithoutCancel(ctx))
		}
		select {
		case <-changed:
		case <-p.dead:
			return nil, errDead
		case <-p.s.ctx.Done():
			return nil, p.s.ctx.Err()
		}
	}
}

// heard makes the guardian end all ranks when the lease is over. The guardian takes up to the kill
// time for this.
func (p *proc) heard(at, lease time.Duration) {
	left := at + lease - time.Since(p.s.began)
	if p.guardian == nil {
		p.guardian = time.AfterFunc(left, func() { p.kill(p.killing()) })
		return
	}
	p.guardian.Reset(left)
}

// killing returns how long the guardian takes to end the ranks. Half of the time this is almost the
// kill time.
func (p *proc) killing() time.Duration {
	if p.chance(2) {
		return simKillTime - p.upTo(simKillTime/8)
	}
	return p.upTo(simKillTime)
}

// kill ends all current ranks of the agent after a time, and reports their exits to the agent.
func (p *proc) kill(after time.Duration) {
	doomed := p.s.living(p)
	time.AfterFunc(after, func() {
		for rank, attempt := range doomed {
			p.exit(rank, attempt, 137)
		}
	})
}

// exit ends a rank, if it still lives, and reports the exit to the agent.
func (p *proc) exit(rank rankOf, attempt, code int) {
	if p.s.died(p, rank, attempt, code) {
		p.post(func() { p.ended(rank, attempt, code) })
	}
}

// post gives f to the agent. It waits while the agent is paused, and drops f if the agent is over.
func (p *proc) post(f func()) {
	select {
	case p.inbox <- f:
	case <-p.over:
	}
}

// later posts f after a random time up to a limit.
func (p *proc) later(limit time.Duration, f func()) {
	time.AfterFunc(p.upTo(limit), func() { p.post(f) })
}

// reliable reports whether the agent lives, and has been free of faults for so long that the
// coordinator cannot count it as lost.
func (p *proc) reliable() bool {
	select {
	case <-p.over:
		return false
	default:
		return p.unscathed() > simLease+simKillTime
	}
}

// run plays the agent, until its session ends or it is killed.
func (p *proc) run() {
	for going := true; going && !p.leaving; {
		select {
		case o, ok := <-p.Orders():
			p.clock()
			if going = ok; ok {
				going = p.obey(o)
			}
		case f := <-p.inbox:
			p.clock()
			f()
		case <-p.dead:
			going = false
		case <-p.s.ctx.Done():
			going = false
		}
	}
	close(p.over)
	p.set(nil)
	p.guardian.Stop()
	p.kill(p.killing())
	p.rest(simKillTime)
	select {
	case <-p.dead:
	default:
		why := "it leaves"
		if err := p.Err(); err != nil {
			why = err.Error()
		}
		p.Close(why)
	}
}

// die acts as if SIGKILL had ended the agent: the guardian ends the ranks, and then sends the proof
// on the connection.
func (p *proc) die() {
	p.cable.cut()
	close(p.dead)
	after := p.killing()
	p.kill(after)
	time.AfterFunc(after+time.Millisecond, func() {
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		if !cut {
			p.cable.testify()
		}
	})
	go p.Close("") // without any report
}

// obey carries out an order. It returns false when the agent leaves.
func (p *proc) obey(o wire.Order) bool {
	switch do := o.Do.(type) {
	case wire.Assign:
		p.units(o.Job)
	case job.Prepare:
		p.later(time.Hour, func() { p.say(o.Job, job.Prepared{Unit: do.Unit, Attempt: do.Attempt, Port: 4000}) })
	case job.Reach:
		p.later(time.Hour, func() { p.say(o.Job, job.Reached{Seq: do.Seq}) })
	case job.Start:
		p.begin(o.Job, do)
	case job.Notice:
		p.later(do.Within, func() { p.say(o.Job, job.Ready{Unit: do.Unit, Attempt: do.Attempt}) })
	case job.Stop:
		p.stop(o.Job, do)
	case job.Finish:
		delete(p.jobs, o.Job)
	case wire.Restate:
		p.restate()
	case wire.Leave:
		return false
	}
	return true
}

func (p *proc) say(id string, ev any) {
	p.s.reported(p, id, ev)
	p.Report(id, ev)
}

func (p *proc) units(id string) map[int]*simUnit {
	if p.jobs[id] == nil {
		p.jobs[id] = map[int]*simUnit{}
	}
	return p.jobs[id]
}

func (p *proc) restate() {
	for id, units := range p.jobs {
		p.say(id, wire.Opened{})
		for _, u := range units {
			for _, ev := range u.said {
				p.say(id, ev)
			}
		}
	}
	p.say("", wire.Restated{})
}

func (p *proc) begin(id string, o job.Start) {
	u := p.units(id)[o.Unit]
	if u != nil && u.attempt >= o.Attempt {
		p.answer(id, u, o.Unit, o.Attempt)
		return
	}
	u = &simUnit{attempt: o.Attempt, left: map[int]bool{}}
	p.units(id)[o.Unit] = u
	p.s.born(p, id, o)
	p.add(id, u, job.Started{Unit: o.Unit, Attempt: o.Attempt})
	for _, b := range o.Group.Bundles {
		u.left[b.Rank] = true
		span, code := p.s.fate(p.dice)
		time.AfterFunc(span, func() { p.exit(rankOf{id, b.Rank}, o.Attempt, code()) })
	}
}

// answer reports the end of an older attempt once the newer attempt on this node has also ended.
func (p *proc) answer(id string, u *simUnit, unit, attempt int) {
	switch {
	case attempt == u.attempt:
		for _, ev := range u.said {
			p.say(id, ev)
		}
	case len(u.left) > 0:
		u.asked = append(u.asked, attempt)
	default:
		p.say(id, job.Stopped{Unit: unit, Attempt: attempt})
	}
}

func (p *proc) stop(id string, o job.Stop) {
	u := p.units(id)[o.Unit]
	switch {
	case u == nil || u.attempt < o.Attempt:
		u = &simUnit{attempt: o.Attempt}
		p.units(id)[o.Unit] = u
		p.add(id, u, job.Stopped{Unit: o.Unit, Attempt: o.Attempt})
	case u.attempt > o.Attempt:
		p.answer(id, u, o.Unit, o.Attempt)
	default:
		u.told = true
		grace := o.Grace
		if o.Kill {
			grace = time.Minute
		}
		for rank := range u.left {
			time.AfterFunc(p.upTo(grace), func() { p.exit(rankOf{id, rank}, o.Attempt, 143) })
		}
	}
}

// ended reports the end of a rank. It also reports the end of the attempt if the rank was the last
// on this node.
func (p *proc) ended(rank rankOf, attempt, code int) {
	for unit, u := range p.jobs[rank.job] {
		if u.attempt != attempt || !u.left[rank.rank] {
			continue
		}
		delete(u.left, rank.rank)
		p.add(rank.job, u, job.Exited{
			Unit: unit, Attempt: attempt, Rank: rank.rank, Exit: report.Exit{Code: code}, At: time.Now(), Told: u.told,
		})
		if len(u.left) > 0 {
			return
		}
		p.add(rank.job, u, job.Stopped{Unit: unit, Attempt: attempt})
		for _, earlier := range u.asked {
			p.answer(rank.job, u, unit, earlier)
		}
	}
}

// add sends a report that the agent must repeat to the next coordinator.
func (p *proc) add(id string, u *simUnit, ev job.Event) {
	u.said = append(u.said, ev)
	p.say(id, ev)
}
