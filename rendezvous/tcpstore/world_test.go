package tcpstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/mutants"
)

var worldSeed = flag.Uint64("world-seed", 0, "make just this world, and print what happens in it")

// TestWorld has clients use a store through proxies, and beside them, with every byte between the two delayed at will. What they are
// answered must be what one store could have answered in some order that agrees with the order in which they asked and heard.
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

// world is a store, two proxies of it, and clients. One goroutine takes all steps.
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

// A world is of one of these kinds: of all that there is, or of keys that come and go while clients wait.
var kinds = [][]byte{
	{
		opSet, opSet, opSet, opGet, opGet, opGet, opGet, opGet, opMultiGet, opMultiGet, opMultiGet, opAdd, opCompareSet, opAppend, opDeleteKey,
		opCheck, opWait, opWait, opWait, opQueuePush, opQueuePop, opQueueLen, opNumKeys, opPing, opMultiSet,
	},
	{opSet, opSet, opDeleteKey, opDeleteKey, opWait, opWait, opWait, opWait, opWait, opWait, opGet},
	{opSet, opDeleteKey, opWait, opWait},
}

// wire carries bytes between a proxy and the store, when it is told to.
type wire struct{ ends [2]int }

// player is a client with what it has asked for and not heard of.
type player struct {
	id    int
	fd    int
	at    *loop
	acts  []*act // not answered
	got   []byte
	waits bool
}

// act is a request, when it was made and when it was known to be done.
type act struct {
	client       *player
	op           byte
	keys         []string
	value, want  string
	delta        int64
	asked, known int
	reply        []byte
	void         bool // a wait that was given up
	free         bool // its client has gone: it was done or not
}

func (a *act) String() string {
	return fmt.Sprintf("client %d: op %d %v %q %q %d = %q [%d, %d]", a.client.id, a.op, a.keys, a.value, a.want, a.delta, a.reply, a.asked, a.known)
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

// desert has all clients go: nothing of them may be left.
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
				conns += len(c.link.waits)
			}
		}
		if u := l.up; u != nil {
			conns += len(u.holds) + len(u.groups) + len(u.asked) + len(u.queue) + len(u.stalled)
		}
		if left != 0 || conns+len(l.table.waiting)+l.late.Len() > 0 {
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
	l.up, err = newUplink(l, proxy, netip.AddrPort{})
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
		l.bell.close()
	}
}

// step is one thing that happens.
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
		w.hear(w.clients[w.rng.IntN(len(w.clients))])
	default:
		w.leave(w.rng.IntN(len(w.clients)))
	}
}

// leave has a client go away, whatever it waits for, and another come in its place.
func (w *world) leave(i int) {
	c := w.clients[i]
	w.log("%d: client %d leaves", w.now, c.id)
	unix.Close(c.fd)
	for _, a := range c.acts {
		a.free, a.void = true, a.void || a.op == opWait
		a.known = 1 << 30
	}
	w.made++
	w.clients[i] = w.join(w.made, c.at)
}

// serve has a loop do once what it does, and says whether there was something.
func (w *world) serve(l *loop) bool {
	events := make([]unix.EpollEvent, 32)
	n, err := unix.EpollWait(l.epoll, events, 0)
	if err != nil && err != unix.EINTR {
		w.t.Fatal(err)
	}
	for _, e := range events[:max(n, 0)] {
		l.serve(int(e.Fd), e.Events)
	}
	l.hurry()
	l.finish()
	l.tell(make(chan struct{}, 1))
	return n > 0
}

// carry takes bytes from one end of a wire to the other.
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

// ask has a client ask for something, unless it waits for an answer. Sometimes it asks for two things at once, or gives up a wait.
func (w *world) ask(c *player) {
	w.hear(c)
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
		if a.op == opWait {
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
	a := &act{client: c, op: opCancelWait, asked: w.now, known: -1}
	c.acts, w.window = append(c.acts, a), append(w.window, a)
	c.waits = false
	_, err := unix.Write(c.fd, a.request())
	ok(w.t, err)
}

func (w *world) act(c *player) *act {
	a := &act{client: c, asked: w.now, known: -1}
	some := func() []string {
		keys := []string{"a", "b", "a", "b", "n"}
		return slices.Compact(keys[w.rng.IntN(3):][:1+w.rng.IntN(2)])
	}
	w.values++
	a.value = fmt.Sprint(w.values)
	a.keys = []string{[]string{"a", "b"}[w.rng.IntN(2)]}
	switch w.ops[w.rng.IntN(len(w.ops))] {
	case opSet:
		a.op = opSet
	case opGet:
		a.op, a.keys = opGet, some()[:1]
	case opMultiGet:
		a.op, a.keys = opMultiGet, some()
	case opAdd:
		a.op, a.keys, a.delta = opAdd, []string{"n"}, 1+int64(w.rng.IntN(3))
	case opCompareSet:
		a.op = opCompareSet
		if w.rng.IntN(2) == 0 {
			a.want = fmt.Sprint(w.rng.IntN(w.values + 1))
		}
	case opAppend:
		a.op = opAppend
	case opDeleteKey:
		a.op = opDeleteKey
	case opCheck:
		a.op, a.keys = opCheck, some()
	case opWait:
		if a.op, a.keys = opWait, some(); w.rng.IntN(2) == 0 {
			a.keys = []string{"a", "b"}
		}
	case opQueuePush:
		a.op, a.keys = opQueuePush, []string{"q"}
	case opQueuePop:
		a.op, a.keys = opQueuePop, []string{"q"}
	case opQueueLen:
		a.op, a.keys = opQueueLen, []string{"q"}
	case opNumKeys:
		a.op = opNumKeys
	case opMultiSet:
		a.op, a.keys = opMultiSet, []string{"a", "b"}
	default:
		a.op = opPing
	}
	return a
}

func (a *act) request() []byte {
	r := ask(a.op)
	switch a.op {
	case opSet, opAppend, opQueuePush:
		r = r.key(a.keys[0]).value([]byte(a.value))
	case opGet, opDeleteKey, opQueuePop, opQueueLen:
		r = r.key(a.keys[0])
	case opMultiGet, opCheck, opWait:
		r = r.keys(a.keys)
	case opAdd:
		r = r.key(a.keys[0]).int(a.delta)
	case opCompareSet:
		r = r.key(a.keys[0]).value([]byte(a.want)).value([]byte(a.value))
	case opMultiSet:
		r = r.int(int64(len(a.keys)))
		for _, key := range a.keys {
			r = r.key(key).value([]byte(a.value))
		}
	case opPing:
		return []byte{opPing, 1, 2, 3, 4}
	}
	return r.bytes
}

func (a *act) replies() bool {
	return a.op != opSet && a.op != opAppend && a.op != opQueuePush && a.op != opMultiSet
}

// hear takes the replies that have come to a client.
func (w *world) hear(c *player) bool {
	var buf [4096]byte
	n, _ := unix.Read(c.fd, buf[:]) // -1 for nothing
	c.got = append(c.got, buf[:max(n, 0)]...)
	for len(c.got) > 0 {
		i := slices.IndexFunc(c.acts, (*act).replies)
		if i < 0 {
			w.t.Errorf("client %d got % x, which it did not ask for", c.id, c.got[:min(len(c.got), 32)])
			c.got = nil
			return false
		}
		a := c.acts[i]
		if a.op == opWait && c.got[0] == waitCanceled {
			a.void = true
			a.known = w.now
			c.acts = slices.Delete(c.acts, i, i+1)
			continue
		}
		size := a.length(c.got)
		if size < 0 {
			break
		}
		a.reply, c.got = bytes.Clone(c.got[:size]), c.got[size:]
		for _, done := range c.acts[:i+1] {
			done.known = w.now
		}
		c.acts = c.acts[i+1:]
		if a.op == opWait && len(c.acts) == 0 {
			c.waits = false
		}
		w.log("%d: %v", w.now, a)
	}
	return n > 0
}

// length is that of a reply that begins with b, or -1 if more of it must come.
func (a *act) length(b []byte) int {
	fields, frames := 0, 0
	switch a.op {
	case opAdd, opDeleteKey, opNumKeys, opQueueLen:
		fields = 8
	case opCheck, opWait, opCancelWait:
		fields = 1
	case opPing:
		fields = 4
	case opGet, opCompareSet:
		frames = 1
	case opMultiGet:
		frames = len(a.keys)
	case opQueuePop:
		fields = 8
		if len(b) >= 8 && binary.LittleEndian.Uint64(b) > 0 {
			frames = 1
		}
	}
	for n := fields; ; frames-- {
		if len(b) < n {
			return -1
		}
		if frames == 0 {
			return n
		}
		if len(b) < n+8 {
			return -1
		}
		n += 8 + int(binary.LittleEndian.Uint64(b[n:]))
	}
}

// quiesce lets all come to rest. Who then waits for what is there was forgotten; the others give up.
func (w *world) quiesce() {
	w.rest()
	for _, c := range w.clients {
		if c.waits {
			a := c.acts[slices.IndexFunc(c.acts, func(a *act) bool { return a.op == opWait })]
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
		for _, a := range c.acts { // those that have no reply
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
			busy = w.hear(c) || busy
		}
	}
}

// model is what a store holds, in text.
type model struct{ a, b, n, q string } // "-" for a key that is not there; of a queue its values with ";" behind each

func (w *world) snapshot() model {
	value := func(key string) string {
		if e := w.root.table.values[prefix+key]; e != nil {
			return string(e.frame.body())
		}
		return "-"
	}
	m := model{value("a"), value("b"), value("n"), ""}
	for _, f := range w.root.table.queues[prefix+"q"] {
		m.q += string(f.body()) + ";"
	}
	return m
}

// check looks for an order of what was asked in the window that explains all answers, and how the store is now.
func (w *world) check() bool {
	if w.state == (model{}) {
		w.state = model{"-", "-", "-", ""}
	}
	end := w.snapshot()
	of := map[*player]int{}
	s := &search{seen: map[string]bool{}, end: end}
	for _, a := range w.window {
		if a.void || a.op == opCancelWait {
			continue
		}
		i, known := of[a.client]
		if !known {
			i = len(s.acts)
			of[a.client], s.acts = i, append(s.acts, nil)
		}
		s.acts[i] = append(s.acts[i], a)
	}
	if !s.explain(w.state, make([]int, len(s.acts)), make([]int, len(s.acts))) {
		slices.SortFunc(w.window, func(a, b *act) int { return a.asked - b.asked })
		text := ""
		for _, a := range w.window {
			text += a.String() + "\n"
		}
		w.t.Errorf("no order explains this, from %+v to %+v:\n%s", w.state, end, text)
		return false
	}
	w.state, w.window = end, nil
	return true
}

// search tries orders. done counts for each client the acts in order, and part has the keys of a wait that were there.
type search struct {
	acts [][]*act
	seen map[string]bool
	end  model
}

func (s *search) explain(m model, done, part []int) bool {
	id := fmt.Sprint(m, done, part)
	if s.seen[id] {
		return false
	}
	s.seen[id] = true
	first := -1 // when the earliest of those that are left was known to be done
	for i, acts := range s.acts {
		if done[i] < len(acts) && (first < 0 || acts[done[i]].known < first) {
			first = acts[done[i]].known
		}
	}
	if first < 0 {
		return m == s.end
	}
	for i, acts := range s.acts {
		if done[i] == len(acts) || acts[done[i]].asked > first {
			continue
		}
		a := acts[done[i]]
		next, ok, left := m.apply(a, part[i])
		d, p := slices.Clone(done), slices.Clone(part)
		if p[i] = left; left == 0 {
			d[i]++
		}
		if (ok || a.free) && s.explain(next, d, p) || a.free && s.explain(m, d, p) {
			return true
		}
	}
	return false
}

func (m *model) at(key string) *string {
	return map[string]*string{"a": &m.a, "b": &m.b, "n": &m.n}[key]
}

// apply does what was asked, and says whether the reply is that of a store. Of a wait it takes all keys that are there, in part the ones
// that were before; left is not 0 while some are missing.
func (m model) apply(a *act, part int) (next model, ok bool, left int) {
	var reply []byte
	value := func(key string) string {
		if v := *m.at(key); v != "-" {
			return v
		}
		return ""
	}
	switch a.op {
	case opSet, opMultiSet:
		for _, key := range a.keys {
			*m.at(key) = a.value
		}
	case opAppend:
		*m.at(a.keys[0]) = value(a.keys[0]) + a.value
	case opGet, opMultiGet:
		for _, key := range a.keys {
			reply = append(reply, str(value(key))...)
		}
	case opAdd:
		var n int64
		fmt.Sscan(value(a.keys[0]), &n)
		m.n = fmt.Sprint(n + a.delta)
		reply = le(n + a.delta)
	case opCompareSet:
		p := m.at(a.keys[0])
		switch {
		case *p == "-" && a.want == "", *p == a.want:
			*p = a.value
			reply = str(a.value)
		case *p == "-":
			reply = str(a.want)
		default:
			reply = str(*p)
		}
	case opDeleteKey:
		p := m.at(a.keys[0])
		if reply = le(0); *p != "-" {
			*p, reply = "-", le(1)
		}
	case opCheck:
		reply = b(ready)
		for _, key := range a.keys {
			if *m.at(key) == "-" {
				reply = b(notReady)
			}
		}
	case opWait:
		had := part
		for i, key := range a.keys {
			if *m.at(key) != "-" {
				part |= 1 << i
			}
		}
		if reply = b(stopWaiting); part != 1<<len(a.keys)-1 {
			return m, part != had, part
		}
	case opQueuePush:
		m.q += a.value + ";"
	case opQueuePop:
		n := int64(strings.Count(m.q, ";"))
		if reply = le(n); n > 0 {
			v, rest, _ := strings.Cut(m.q, ";")
			m.q, reply = rest, append(reply, str(v)...)
		}
	case opQueueLen:
		reply = le(int64(strings.Count(m.q, ";")))
	case opNumKeys:
		n := int64(0)
		for _, v := range []string{m.a, m.b, m.n} {
			if v != "-" {
				n++
			}
		}
		reply = le(n)
	case opPing:
		reply = b(1, 2, 3, 4)
	}
	return m, bytes.Equal(reply, a.reply), 0
}
