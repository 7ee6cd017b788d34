package rendezvous

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
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
	result chan report.Result
	// serving waits for the servers of all coordinators so far.
	serving sync.WaitGroup

	mu        sync.Mutex
	decisions []decided
	warnings  []string
	// lives has the node on which each rank of each job runs, and the job that uses each GPU of a
	// node. begun counts the starts of each rank.
	lives map[[2]string]string
	begun map[[2]string]int
}

// spec is a job of n nodes with one CPU rank each.
func spec(n int) job.Spec {
	return job.Spec{
		ID: "j1", MaxRestarts: 3, Grace: 30 * time.Second,
		Request: placement.Request{MinNodes: n, MaxNodes: n, PerNode: []int{1}},
	}
}

// one returns a submission of a job of n nodes.
func one(n int) replica.Submission {
	return replica.Submission{Spec: cluster.Spec{Job: spec(n)}, BackoffMin: time.Second, BackoffMax: time.Minute}
}

func newWorld(t *testing.T, nodes int) *world {
	return newWorldOf(t.Context(), t, Config{}, one(nodes))
}

func newWorldOf(ctx context.Context, t *testing.T, cfg Config, s replica.Submission) *world {
	w := &world{t: t, result: make(chan report.Result, 1), lives: map[[2]string]string{}, begun: map[[2]string]int{}}
	cfg.Job, cfg.Observe = &s, w.observe
	t.Cleanup(w.serving.Wait)
	w.serve(cfg)
	c := w.c
	go func() {
		result, err := c.Run(ctx)
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		w.result <- result
	}()
	return w
}

// decided is a decision, with the event that led to it.
type decided struct {
	report.Decision
	event job.Event
}

func (w *world) observe(ev job.Event, d report.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decisions = append(w.decisions, decided{d, ev})
}

// serve makes a new coordinator serve agents and clients.
func (w *world) serve(cfg Config) {
	if cfg.Lease == 0 {
		cfg.Lease, cfg.KillTime = lease, killTime
	}
	cfg.Warn = w.warn
	c := NewCoordinator(cfg)
	l, dial := wiretest.Pipe()
	w.mu.Lock()
	w.c, w.dial = c, dial
	w.mu.Unlock()
	w.serving.Go(func() {
		if err := c.Serve(l, nil); err != nil {
			w.t.Errorf("Serve: %v", err)
		}
	})
}

// connect connects to the present coordinator.
func (w *world) connect(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	dial := w.dial
	w.mu.Unlock()
	return dial(ctx)
}

// coordinator returns the present coordinator.
func (w *world) coordinator() *Coordinator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.c
}

func (w *world) warn(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, err.Error())
}

// decided returns the reasons so far.
func (w *world) decided() (reasons []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.decisions {
		reasons = append(reasons, d.Reason)
	}
	return reasons
}

// when returns the time of the first event that f accepts.
func (w *world) when(f func(job.Event) bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.decisions {
		if f(d.event) {
			return d.At
		}
	}
	w.t.Fatal("no such event")
	return time.Time{}
}

func isLost(ev job.Event) bool { _, ok := ev.(job.Lost); return ok }

func node(i int) placement.Node {
	return placement.Node{Name: fmt.Sprintf("n%d", i), Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
}

// cable is the network between one peer and the coordinator. Data that is sent in a cut direction
// is lost, and the sender gets no error.
type cable struct {
	dial        func(context.Context) (net.Conn, error)
	up, down    atomic.Bool // cut
	unreachable atomic.Bool
	stuck       atomic.Bool  // nothing is read
	late        atomic.Int64 // what comes down takes this long
	// proof is the proof that the guardian sends to the coordinator.
	proof [wire.ProofSize]byte

	mu    sync.Mutex
	conns []*cableConn
}

// newCable returns the cable of an agent, which has a guardian.
func newCable(dial func(context.Context) (net.Conn, error)) *cable {
	c := &cable{dial: dial}
	rand.Read(c.proof[:])
	return c
}

// testify acts like the guardian once agent and ranks are dead: it sends the proof on the newest
// connection.
func (c *cable) testify() {
	if conn := c.newest(); !conn.dead.Load() {
		conn.end(c.proof[:])
	}
}

// cut makes the network lose all data and all ends of connections, without an error.
func (c *cable) cut() {
	c.up.Store(true)
	c.down.Store(true)
}

// mend mends the network for new connections. Earlier connections stay dead.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.dead.Store(true)
	}
	c.up.Store(false)
	c.down.Store(false)
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
	dead   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *cableConn) cutUp() bool { return c.dead.Load() || c.cable.up.Load() }

func (c *cableConn) cutDown() bool { return c.dead.Load() || c.cable.down.Load() }

// SetDeadline ends all reading. Other code calls it only for that.
func (c *cableConn) SetDeadline(t time.Time) error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.SetDeadline(t)
}

// Close does not reach the other end when the cable is cut.
func (c *cableConn) Close() error {
	if c.cutUp() {
		return c.SetDeadline(time.Unix(1, 0))
	}
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *cableConn) Write(b []byte) (int, error) {
	if c.cutUp() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cableConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if c.cable.stuck.Load() || err != nil && c.cutDown() {
			<-c.closed
		}
		time.Sleep(time.Duration(c.cable.late.Load()))
		if err != nil || !c.cutDown() {
			return n, err
		}
	}
}

// end sends some last bytes to the other end, and then closes the connection.
func (c *cableConn) end(words []byte) {
	c.Conn.SetDeadline(time.Time{}) // this end may be closed
	c.Conn.Write(words)
	c.Conn.Close()
}

// timeout breaks a connection for this end alone.
func (c *cableConn) timeout() { c.Conn.SetDeadline(time.Unix(1, 0)) }
