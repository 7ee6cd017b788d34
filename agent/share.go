package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/endpoint"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// share is this node's share of one job. It belongs to the agent's goroutine.
type share struct {
	agent *life
	job   string
	work  Work
	// err is why no rank can run here.
	err   error
	units map[int]*unit
	// prepared is the newest answer to each unit's question for a port.
	prepared map[int]job.Prepared
	// store is torch's, when this node is the job's master, and peers who may use it.
	store store
	// proxy stands for that of another node, for the ranks here; nil when there is none.
	proxy *proxy
	peers atomic.Pointer[tcpstore.Peers]
	// preload has a fork server ready; nil when the ranks are to import for themselves.
	preload *preload
	// endpoint is where a controller reaches the ranks; nil when none may.
	endpoint *endpoint.Endpoint
	// held keeps the port that rank 0 is to have, and answers there until it starts; nil when there is none.
	held *heldPort
	// unask ends the newest [job.Reach] that is at work, unprepare the newest [job.Prepare].
	unask, unprepare context.CancelFunc
	// looked is the newest look at the command; nil before the first.
	looked  *look
	readers sync.WaitGroup
	// worldSize is that of the newest attempt; 0 before the first. Readers ask for it.
	worldSize atomic.Int64
	// warned are the warnings about bindings that were told.
	warned map[bind.Warning]bool
	// filing are the bundles that are being written, and looking is held by the one that looks at the node.
	filing  sync.WaitGroup
	looking sync.Mutex
	// over is closed when no unit will begin any more.
	over   chan struct{}
	ending sync.Once
}

// newShare makes ready for a job. endpoint is where an earlier agent has left that of the job's ranks; empty when there was none.
func newShare(a *life, id string, as Assignment, endpoint string) *share {
	s := &share{
		agent: a, job: id, units: map[int]*unit{}, prepared: map[int]job.Prepared{}, over: make(chan struct{}),
		unask: func() {}, unprepare: func() {}, warned: map[bind.Warning]bool{},
	}
	s.work, s.err = a.Open(id, as, a.session.Node.Addr)
	if s.err == nil && s.work.Task.Preload == nil {
		s.work.Task.Preload = a.Preload
	}
	s.makeEndpoint(endpoint)
	if s.err == nil && len(s.work.Task.Preload) > 0 {
		s.preload = newPreload(s)
	}
	quiet := make(chan struct{})
	a.done.Go(func() {
		defer close(quiet)
		s.quieten()
	})
	a.readers.Go(func() {
		<-quiet
		s.readers.Wait()
		if s.work.Close != nil {
			s.work.Close()
		}
	})
	return s
}

// rights are those of the user whose ranks they are.
func (s *share) rights() *safefile.Rights { return (*safefile.Rights)(s.work.User) }

// quieten waits until nothing of the job lives here, and nothing more is written.
func (s *share) quieten() {
	<-s.over
	for _, u := range s.units {
		<-u.gone
	}
	s.preload.end()
	s.filing.Wait()
	s.closeStore()
	s.closeProxy()
	s.closeEndpoint()
	s.letGo()
	if s.err == nil {
		s.work.Output.Dir.Done()
	}
	s.forget()
	s.agent.sampler.forget(s.job)
}

// kill ends all units.
func (s *share) kill() {
	for _, u := range s.units {
		u.stop(job.Stop{Kill: true})
	}
	s.unask()
	s.unprepare()
	s.ending.Do(func() { close(s.over) })
}

// end stops all units in order, by what this node was told.
func (s *share) end(sig syscall.Signal, grace time.Duration) {
	for _, u := range s.units {
		u.stop(job.Stop{Grace: grace, Signal: int(sig)})
	}
	s.unask()
	s.unprepare()
	s.ending.Do(func() { close(s.over) })
}

// start begins an attempt unless it, or a later one, has been here already: then what became of it is told again.
func (s *share) start(o job.Start) {
	switch u := s.units[o.Unit]; {
	case !s.knows(o.Unit, o.Attempt):
		s.grown(o.World.WorldSize)
		s.letGo()
		u := newUnit(s, o)
		u.proxy, u.proxyErr = s.stand(o)
		u.bindings, u.bindErr = s.bind(o.World)
		u.env = s.environment(o.World)
		s.begin(u)
	case u.order.Attempt == o.Attempt:
		u.restate()
	default:
		s.outlived(u, o.Attempt)
	}
}

// environment is what the ranks of an attempt share of theirs; nil where none can run.
func (s *share) environment(w job.World) *rankenv.Base {
	task := s.work.Task
	if s.err != nil || task.Presets == nil {
		return task.Env
	}
	return task.Env.With(task.Presets(w.Network))
}

// stop ends an attempt. One that never began here begins stopped, so that it cannot begin late.
func (s *share) stop(o job.Stop) {
	if !s.knows(o.Unit, o.Attempt) {
		u := newUnit(s, job.Start{Unit: o.Unit, Attempt: o.Attempt})
		u.stop(job.Stop{Kill: true})
		s.begin(u)
		return
	}
	if u := s.units[o.Unit]; u.order.Attempt == o.Attempt {
		u.stop(o)
	} else {
		s.outlived(u, o.Attempt)
	}
}

// notice tells the ranks of an attempt that they will be stopped.
func (s *share) notice(o job.Notice) {
	if u := s.units[o.Unit]; u != nil && u.order.Attempt == o.Attempt {
		u.forewarn(o)
	}
}

// outlived answers for an attempt before u: it does not begin any more, and once u has ended none of its ranks lives. Who asks for
// it, a coordinator whose journal was torn, must not wait forever.
func (s *share) outlived(u *unit, attempt int) {
	s.agent.done.Go(func() {
		<-u.gone
		s.report(job.Stopped{Node: s.agent.session.Node.Name, Unit: u.order.Unit, Attempt: attempt})
	})
}

// knows says that an attempt of a unit, or a later one, has been here.
func (s *share) knows(id, attempt int) bool {
	u := s.units[id]
	return u != nil && u.order.Attempt >= attempt
}

// begin makes u the newest attempt of its ranks.
func (s *share) begin(u *unit) {
	old := s.units[u.order.Unit]
	s.units[u.order.Unit] = u
	go func() {
		if old != nil {
			// The barrier is the coordinator's; this holds it even if an order came too early.
			old.stop(job.Stop{Kill: true})
			<-old.gone
			old.forget()
		}
		u.run()
	}()
}

func (s *share) report(ev any) { s.agent.report(s.job, ev) }

// restate repeats the reports of the newest attempts.
func (s *share) restate() {
	s.report(wire.Opened{})
	for _, u := range s.units {
		u.restate()
	}
}

func (s *share) signal(sig syscall.Signal) {
	for _, u := range s.units {
		u.signal(sig)
	}
}
