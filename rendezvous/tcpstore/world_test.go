package tcpstore

import (
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/mutants"
	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

var worldSeed = flag.Uint64("world-seed", 0, "make just this world, and print what happens in it")

// TestWorld has clients that use a store directly and through proxies, while every byte between
// proxies and store is delayed at random. One store must be able to give the same answers, in an
// order of the requests that agrees with the times of requests and answers.
func TestWorld(t *testing.T) {
	if *worldSeed > 0 {
		makeWorld(t, *worldSeed, t.Logf)
		return
	}
	for n := range uint64(mutants.Worlds(1200)) {
		if !makeWorld(t, n+1, func(string, ...any) {}) {
			t.Fatalf("see go test -run TestWorld -v -world-seed=%d", n+1)
		}
	}
}

func TestMutants(t *testing.T) { mutants.MustDie(t) }

// world is a store, two proxies of the store, and clients. One goroutine runs all of them.
type world struct {
	t       *testing.T
	log     func(string, ...any)
	rng     *rand.Rand
	root    *loop
	loops   []*loop // the store first
	wires   []*wire
	clients []*player
	now     int
	values  int
	ops     []byte
	made    int   // the number of the last client
	state   model // at the beginning of the window
	window  []*act
}

// There are two kinds of worlds: worlds with all requests, and worlds with keys that come and go
// while clients wait.
var kinds = [][]byte{
	{
		protocol.OpSet, protocol.OpSet, protocol.OpSet, protocol.OpGet, protocol.OpGet, protocol.OpGet, protocol.OpGet, protocol.OpGet, protocol.OpMultiGet, protocol.OpMultiGet, protocol.OpMultiGet, protocol.OpAdd, protocol.OpCompareSet, protocol.OpAppend, protocol.OpDeleteKey,
		protocol.OpCheck, protocol.OpWait, protocol.OpWait, protocol.OpWait, protocol.OpQueuePush, protocol.OpQueuePop, protocol.OpQueueLen, protocol.OpNumKeys, protocol.OpPing, protocol.OpMultiSet,
	},
	{protocol.OpSet, protocol.OpSet, protocol.OpDeleteKey, protocol.OpDeleteKey, protocol.OpWait, protocol.OpWait, protocol.OpWait, protocol.OpWait, protocol.OpWait, protocol.OpWait, protocol.OpGet},
	{protocol.OpSet, protocol.OpDeleteKey, protocol.OpWait, protocol.OpWait},
}

// wire carries bytes between a proxy and the store, one step at a time.
type wire struct{ ends [2]int }

// player is a client, with the requests that have no answer yet.
type player struct {
	id    int
	fd    int
	at    *loop
	acts  []*act // not answered
	got   []byte
	waits bool
}

func makeWorld(t *testing.T, seed uint64, log func(string, ...any)) bool {
	w := &world{t: t, log: log, rng: rand.New(rand.NewPCG(seed, 0)), ops: kinds[[]int{0, 1, 2, 0}[seed%4]]}
	defer w.close()
	w.root = w.loop()
	w.root.table.changes.most = 2
	for range 2 {
		w.proxy()
	}
	for i := range 5 {
		w.made = i
		w.clients = append(w.clients, w.join(i, w.loops[[]int{1, 1, 1, 2, 0}[i]]))
	}
	for range 6 {
		for range 30 + w.rng.IntN(60) {
			w.step()
		}
		if w.quiesce(); t.Failed() || !w.check() {
			return false
		}
	}
	w.desert()
	return !t.Failed()
}

// desert disconnects all clients. The store must then hold no memory for them.
func (w *world) desert() {
	for _, c := range w.clients {
		unix.Close(c.fd)
	}
	w.clients = nil
	w.rest()
	for i, l := range w.loops {
		left := l.table.budget.used
		for key, e := range l.table.values {
			left -= int64(cost(key, e.frame))
		}
		for queue, frames := range l.table.queues {
			for _, f := range frames {
				left -= int64(cost(queue, f))
			}
		}
		conns := len(l.conns)
		if i == 0 {
			conns -= len(w.wires)
			for _, c := range l.conns {
				conns += len(c.proxyLink.waits)
				left -= int64(len(c.proxyLink.clientList)) // sent if the world lasts for a second
			}
		}
		if u := l.uplink; u != nil {
			conns += len(u.waits.byNumber) + len(u.waits.byKeys) + len(u.asked) + len(u.reads.queue) + len(u.stalled)
		}
		if left != 0 || conns+len(l.table.waiting)+l.deadlines.late.Len() > 0 {
			w.t.Errorf("clients have left %d bytes, %d waits and others at loop %d", left, len(l.table.waiting), i)
		}
	}
}

func (w *world) loop() *loop {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(w.t, err)
	warn := func(err error) {
		if !errors.Is(err, ErrVanished) {
			w.t.Errorf("a client was disconnected: %v", err)
		}
	}
	made, err := newLoop(l, Options{MaxBytes: 1 << 30, Patience: patience, Warn: warn}, nil)
	ok(w.t, err)
	w.loops = append(w.loops, made)
	return made
}

func pair(t *testing.T) (a, b int) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	ok(t, err)
	return ends[0], ends[1]
}

func (w *world) proxy() {
	l := w.loop()
	proxy, a := pair(w.t)
	b, root := pair(w.t)
	var err error
	l.uplink, err = newUplink(l, proxy, netip.AddrPort{})
	ok(w.t, err)
	w.root.admit(root, nil)
	w.wires = append(w.wires, &wire{[2]int{a, b}})
}

func (w *world) join(id int, at *loop) *player {
	client, store := pair(w.t)
	at.admit(store, nil)
	_, err := unix.Write(client, hello)
	ok(w.t, err)
	return &player{id: id, fd: client, at: at}
}

func (w *world) close() {
	for _, c := range w.clients {
		unix.Close(c.fd)
	}
	for _, wire := range w.wires {
		unix.Close(wire.ends[0])
		unix.Close(wire.ends[1])
	}
	for _, l := range w.loops {
		l.close()
		l.poller.Bell.Close()
	}
}

// step does one random step.
func (w *world) step() {
	w.now++
	switch n := w.rng.IntN(10); {
	case n < 3:
		w.ask(w.clients[w.rng.IntN(len(w.clients))])
	case n < 6:
		w.serve(w.loops[w.rng.IntN(len(w.loops))])
	case n < 9:
		w.carry(w.wires[w.rng.IntN(len(w.wires))], w.rng.IntN(2), 1+w.rng.IntN(200))
	case w.rng.IntN(12) > 0:
		w.handleMessage(w.clients[w.rng.IntN(len(w.clients))])
	default:
		w.leave(w.rng.IntN(len(w.clients)))
	}
}

// leave replaces a client with a new client, even if the client waits.
func (w *world) leave(i int) {
	c := w.clients[i]
	w.log("%d: client %d leaves", w.now, c.id)
	unix.Close(c.fd)
	for _, a := range c.acts {
		a.free, a.void = true, a.void || a.op == protocol.OpWait
		a.known = 1 << 30
	}
	w.made++
	w.clients[i] = w.join(w.made, c.at)
}

// serve makes a loop do one round, and reports whether there was something to do.
func (w *world) serve(l *loop) bool {
	events := make([]unix.EpollEvent, 32)
	n, err := unix.EpollWait(l.poller.FD, events, 0)
	if err != nil && err != unix.EINTR {
		w.t.Fatal(err)
	}
	for _, e := range events[:max(n, 0)] {
		l.serve(int(e.Fd), e.Events)
	}
	l.expire()
	l.flushProxies()
	l.signalChange(make(chan struct{}, 1))
	return n > 0
}

// carry moves bytes from one end of a wire to the other.
func (w *world) carry(wire *wire, from, most int) bool {
	buf := make([]byte, most)
	n, err := unix.Read(wire.ends[from], buf)
	if err != nil {
		return false
	}
	_, err = unix.Write(wire.ends[1-from], buf[:n])
	ok(w.t, err)
	return n > 0
}

// ask makes a client send a request, if the client does not wait for an answer. Sometimes the
// client sends two requests at once, or gives up a wait.
func (w *world) ask(c *player) {
	w.handleMessage(c)
	if c.waits {
		if w.rng.IntN(12) == 0 {
			w.cancel(c)
		}
		return
	}
	if answerable(c.acts) {
		return
	}
	var out []byte
	for range 1 + w.rng.IntN(2) {
		a := w.act(c)
		c.acts, w.window = append(c.acts, a), append(w.window, a)
		out = append(out, a.request()...)
		if a.op == protocol.OpWait {
			c.waits = true
			break
		}
	}
	_, err := unix.Write(c.fd, out)
	ok(w.t, err)
}

func answerable(acts []*act) bool {
	return slices.ContainsFunc(acts, func(a *act) bool { return a.replies() })
}

func (w *world) cancel(c *player) {
	a := &act{client: c, op: protocol.OpCancelWait, asked: w.now, known: -1}
	c.acts, w.window = append(c.acts, a), append(w.window, a)
	c.waits = false
	_, err := unix.Write(c.fd, a.request())
	ok(w.t, err)
}

// quiesce carries all bytes until nothing moves. No client may then wait for keys that all exist,
// because the store would have forgotten this client. Clients that wait for missing keys give up.
func (w *world) quiesce() {
	w.rest()
	for _, c := range w.clients {
		if c.waits {
			a := c.acts[slices.IndexFunc(c.acts, func(a *act) bool { return a.op == protocol.OpWait })]
			missing := slices.ContainsFunc(a.keys, func(key string) bool { return !w.root.table.exists([]byte(prefix + key)) })
			if !missing {
				w.t.Errorf("it waits though all is there: %v", a)
			}
			w.now++
			w.cancel(c)
		}
	}
	w.rest()
	for _, c := range w.clients {
		if answerable(c.acts) || len(c.got) > 0 {
			w.t.Errorf("client %d has had no answer to %v", c.id, c.acts)
		}
		for _, a := range c.acts { // requests without a reply
			a.known = w.now
		}
		c.acts = nil
	}
}

func (w *world) rest() {
	for busy := true; busy; {
		busy = false
		w.now++
		for _, l := range w.loops {
			busy = w.serve(l) || busy
		}
		for _, wire := range w.wires {
			busy = w.carry(wire, 0, 4096) || busy
			busy = w.carry(wire, 1, 4096) || busy
		}
		for _, c := range w.clients {
			busy = w.handleMessage(c) || busy
		}
	}
}
