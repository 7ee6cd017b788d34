package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
)

const (
	lease    = 15 * time.Second
	killTime = 5 * time.Second
)

// world is a coordinator with its listener, in virtual time.
type world struct {
	t      *testing.T
	c      *Coordinator
	dial   func(context.Context) (net.Conn, error)
	result chan job.Result

	mu        sync.Mutex
	decisions []Decision
	warnings  []string
}

// spec wants n nodes with one CPU rank each.
func spec(n int) job.Spec {
	return job.Spec{
		ID: "j1", MaxRestarts: 3, Grace: 30 * time.Second,
		Request: placement.Request{MinNodes: n, MaxNodes: n, PerNode: []int{1}},
	}
}

func newWorld(t *testing.T, cfg Config) *world { return newWorldCtx(t.Context(), t, cfg) }

func newWorldCtx(ctx context.Context, t *testing.T, cfg Config) *world {
	w := &world{t: t, result: make(chan job.Result, 1)}
	cfg.Lease, cfg.KillTime, cfg.BackoffMin, cfg.BackoffMax = lease, killTime, time.Second, time.Minute
	cfg.Observe = func(d Decision) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.decisions = append(w.decisions, d)
	}
	cfg.Warn = w.warn
	w.c = NewCoordinator(cfg)
	l, dial := Pipe()
	w.dial = dial
	go func() {
		if err := w.c.Serve(l, nil); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	go func() { w.result <- w.c.Run(ctx) }()
	return w
}

func (w *world) warn(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, err.Error())
}

// decided has the reasons so far.
func (w *world) decided() (reasons []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.decisions {
		reasons = append(reasons, d.Reason)
	}
	return reasons
}

// when is the time of the first event that f accepts.
func (w *world) when(f func(job.Event) bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.decisions {
		if f(d.Event) {
			return d.At
		}
	}
	w.t.Fatal("no such event")
	return time.Time{}
}

func isLost(ev job.Event) bool { _, ok := ev.(job.Lost); return ok }

func node(i int) placement.Node {
	return placement.Node{Name: fmt.Sprintf("n%d", i), Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

// agent is a scripted one: what it is asked it has done at once, and exit says how its ranks end in an attempt; those for which
// it says false run until they are stopped.
type agent struct {
	*Session
	cable *cable
	exit  func(attempt int) (code int, ends bool)
	done  chan struct{}

	mu     sync.Mutex
	starts []job.Start
	alive  map[[2]int]int // rank by unit and attempt
	finish *job.Finish
	end    time.Time
}

func forever(int) (int, bool) { return 0, false }
func success(int) (int, bool) { return 0, true }

func (w *world) join(i int, exit func(int) (int, bool)) *agent { return w.joinAs(node(i), exit) }

func (w *world) joinAs(n placement.Node, exit func(int) (int, bool)) *agent {
	w.t.Helper()
	c := &cable{dial: w.dial}
	s, err := Join(w.t.Context(), Options{Target: "head:1", Node: n, Dial: c.connect, Warn: w.warn})
	if err != nil {
		w.t.Fatal(err)
	}
	a := &agent{Session: s, cable: c, exit: exit, done: make(chan struct{}), alive: map[[2]int]int{}}
	go a.run()
	return a
}

func (a *agent) run() {
	defer close(a.done)
	for o := range a.Orders() {
		a.do(o)
	}
	a.mu.Lock()
	a.end = time.Now()
	a.mu.Unlock()
}

func (a *agent) do(o Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch o := o.(type) {
	case job.Prepare:
		a.Report(job.Prepared{Unit: o.Unit, Attempt: o.Attempt, Port: 4000})
	case job.Start:
		a.starts = append(a.starts, o)
		a.alive[[2]int{o.Unit, o.Attempt}] = o.Group.Bundles[0].Rank
		a.Report(job.Started{Unit: o.Unit, Attempt: o.Attempt})
		if code, ends := a.exit(o.Attempt); ends {
			a.stop(o.Unit, o.Attempt, code)
		}
	case job.Stop:
		a.stop(o.Unit, o.Attempt, 143)
	case job.Finish:
		a.finish = &o
	}
}

func (a *agent) stop(unit, attempt, code int) {
	if rank, ok := a.alive[[2]int{unit, attempt}]; ok {
		delete(a.alive, [2]int{unit, attempt})
		a.Report(job.Exited{Unit: unit, Attempt: attempt, Rank: rank, Exit: job.Exit{Code: code}, At: time.Now()})
	}
	a.Report(job.Stopped{Unit: unit, Attempt: attempt})
}

// end lets the ranks of an attempt exit.
func (a *agent) exitAll(attempt, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(0, attempt, code)
}

func (a *agent) attempts() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.starts)
}

// cable is the network between an agent and the coordinator. What goes into a cut direction is gone, without an error.
type cable struct {
	dial        func(context.Context) (net.Conn, error)
	up, down    atomic.Bool // cut
	unreachable atomic.Bool
	stuck       atomic.Bool  // nothing is read
	late        atomic.Int64 // what comes down takes this long

	mu    sync.Mutex
	conns []*cableConn
}

func (c *cable) connect(ctx context.Context) (net.Conn, error) {
	if c.unreachable.Load() || c.up.Load() || c.down.Load() {
		return nil, fmt.Errorf("no route to host")
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, &cableConn{Conn: conn, cable: c, closed: make(chan struct{})})
	return c.conns[len(c.conns)-1], nil
}

func (c *cable) newest() *cableConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[len(c.conns)-1]
}

type cableConn struct {
	net.Conn
	cable  *cable
	once   sync.Once
	closed chan struct{}
}

// SetDeadline is called only to end all reading.
func (c *cableConn) SetDeadline(t time.Time) error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.SetDeadline(t)
}

func (c *cableConn) Write(b []byte) (int, error) {
	if c.cable.up.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cableConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if c.cable.stuck.Load() {
			<-c.closed
		}
		time.Sleep(time.Duration(c.cable.late.Load()))
		if err != nil || !c.cable.down.Load() {
			return n, err
		}
	}
}

// timeout breaks a connection for the agent alone.
func (c *cableConn) timeout() { c.Conn.SetDeadline(time.Unix(1, 0)) }
