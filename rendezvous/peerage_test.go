package rendezvous

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// peerage is a job whose nodes all run the same command, in virtual time. Each of them may
// coordinate the job.
type peerage struct {
	*world
	want replica.Submission

	net   sync.Mutex
	ports map[string]*port
	side  map[string]bool
	dead  map[string]bool
	// firewalled are nodes whose firewall refuses all connections.
	firewalled map[string]bool
	wires      []strand
	process    []*process
	// epoch is the epoch of the first coordinator.
	epoch string
}

// process is the process of one node: an agent, a candidate, and sometimes the coordinator.
type process struct {
	*agent
	name      string
	candidate *Candidate
	exit      func(int) (int, bool)
	dial      func(context.Context, string) (net.Conn, error)
	// proof is the proof that the process's guardian sends to the coordinator.
	proof [wire.ProofSize]byte
	end   func()
	over  chan struct{}
	// leads says that the process's coordinator still leads. results are the results that the
	// coordinator decided.
	mu      sync.Mutex
	leads   bool
	results []report.Result
	notes   []string
}

// port is where a process listens.
type port struct {
	*bufconn.Listener
	addr string
}

func (p *port) Addr() net.Addr { return portAddr(p.addr) }

type portAddr string

func (portAddr) Network() string { return "bufconn" }

func (a portAddr) String() string { return string(a) }

// strand is a connection between two nodes.
type strand struct {
	from, to string
	*cable
}

// together runs f with a job for n nodes.
func together(t *testing.T, n int, f func(t *testing.T, p *peerage)) {
	synctest.Test(t, func(t *testing.T) {
		p := &peerage{
			world: &world{t: t, lives: map[[2]string]string{}, begun: map[[2]string]int{}},
			want:  one(n), ports: map[string]*port{}, side: map[string]bool{}, dead: map[string]bool{}, firewalled: map[string]bool{},
		}
		p.want.BackoffMin, p.want.BackoffMax = 0, 0
		t.Cleanup(p.endAll)
		f(t, p)
	})
}

func (p *peerage) listen(name string) *port {
	p.net.Lock()
	defer p.net.Unlock()
	l := &port{bufconn.Listen(64 << 10), name + ":1"}
	p.ports[l.addr] = l
	return l
}

// dial connects to a listener on another node. It cannot connect across a cut.
func (p *peerage) dial(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to, _, _ := strings.Cut(addr, ":")
		p.net.Lock()
		l, cut := p.ports[addr], p.side[from] != p.side[to]
		gone := p.dead[from] || p.dead[to] || p.firewalled[to]
		p.net.Unlock()
		if cut {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if l == nil || gone {
			return nil, errors.New("connection refused")
		}
		c := &cable{dial: l.DialContext}
		conn, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		p.net.Lock()
		defer p.net.Unlock()
		p.wires = append(p.wires, strand{from, to, c})
		return conn, nil
	}
}

// part cuts the given nodes off from the others. They get no error. Without names it mends the
// network for new connections.
func (p *peerage) part(names ...string) {
	p.net.Lock()
	defer p.net.Unlock()
	p.side = map[string]bool{}
	for _, name := range names {
		p.side[name] = true
	}
	for _, w := range p.wires {
		if p.side[w.from] != p.side[w.to] {
			w.cut()
		} else if w.up.Load() {
			w.mend()
		}
	}
}

// home is where the nodes meet, on the first node.
const home = "n1:1"

// add starts a process. The first process begins the job.
func (p *peerage) add(i int, exit func(int) (int, bool)) *process {
	p.t.Helper()
	q := p.begin(i, exit)
	q.agent = p.enter(q, nil)
	p.epoch = cmp.Or(p.epoch, q.Membership().Epoch)
	return q
}

// begin starts a process whose agent has not joined yet.
func (p *peerage) begin(i int, exit func(int) (int, bool)) *process {
	p.t.Helper()
	name := "n" + strconv.Itoa(i)
	ctx, cancel := context.WithCancel(context.Background())
	q := &process{name: name, exit: exit, end: cancel, over: make(chan struct{})}
	rand.Read(q.proof[:])
	q.dial = func(c context.Context, addr string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, errors.New("this process is dead")
		}
		return p.dial(name)(c, addr)
	}
	cfg := CandidateConfig{
		Node: name, Home: home, Lease: lease, Dial: q.dial, Warn: p.warn,
		Listen: func(netip.Addr) (net.Listener, error) { return p.listen(name), nil },
	}
	var l *port
	if i == 1 {
		l = p.listen(name)
		cfg.Addr, cfg.Home = l.addr, ""
	}
	q.candidate = NewCandidate(cfg)
	p.process = append(p.process, q)
	var first *Coordinator
	if l != nil {
		first = p.coordinator(q, nil)
		go func() {
			if err := q.candidate.Serve(l); err != nil {
				p.t.Error(err)
			}
		}()
	}
	go p.govern(ctx, q, first)
	return q
}

// enter makes the agent of a process join, at home or elsewhere.
func (p *peerage) enter(q *process, elsewhere []string) *agent {
	p.t.Helper()
	i, _ := strconv.Atoi(q.name[1:])
	return p.joinWith(session.Options{
		Target: home, Node: node(i), Proof: q.proof, Warn: p.warn, Voter: q.candidate, Lease: lease, DialAt: q.dial, Elsewhere: elsewhere,
		Dial: func(ctx context.Context) (net.Conn, error) { return q.dial(ctx, home) },
	}, q.exit, map[string]*share{})
}

// coordinator continues the job in a term, or begins it.
func (p *peerage) coordinator(q *process, term *Term) *Coordinator {
	return NewCoordinator(Config{
		Job: &p.want, Lease: lease, KillTime: killTime, Warn: p.warn, Observe: p.observe, Candidate: q.candidate, Term: term,
		Note: func(text string) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.notes = append(q.notes, text)
		},
	})
}

// govern runs coordinators in a process until ctx ends.
func (p *peerage) govern(ctx context.Context, q *process, c *Coordinator) {
	defer close(q.over)
	for {
		if c != nil {
			q.lead(true)
			result, err := c.Run(ctx)
			q.lead(false)
			_, elsewhere := errors.AsType[*wire.ElsewhereError](err)
			switch {
			case elsewhere:
			case err == nil:
				q.mu.Lock()
				q.results = append(q.results, result)
				q.mu.Unlock()
				return
			case !errors.Is(err, ErrDeposed):
				p.t.Error(err)
				return
			}
		}
		select {
		case term := <-q.candidate.Terms():
			c = p.coordinator(q, &term)
		case <-ctx.Done():
			return
		}
	}
}

func (q *process) lead(leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leads = leads
}

// leader waits for the process that coordinates, and returns it.
func (p *peerage) leader() *process {
	p.t.Helper()
	for range 600 {
		if q := p.leading(); q != nil {
			return q
		}
		time.Sleep(lease / 100)
	}
	p.t.Fatal("there is no coordinator")
	return nil
}

func (p *peerage) leading() *process {
	for _, q := range p.process {
		q.mu.Lock()
		leads := q.leads
		q.mu.Unlock()
		if leads && !p.side[q.name] && !p.dead[q.name] {
			return q
		}
	}
	return nil
}

// crash acts as if SIGKILL had ended a process. The guardian then ends the ranks before it releases
// the connection.
func (p *peerage) crash(q *process) {
	p.net.Lock()
	p.dead[q.name] = true
	p.net.Unlock()
	q.agent.mu.Lock()
	for id := range q.agent.jobs {
		q.agent.kill(id)
	}
	q.agent.mu.Unlock()
	heard := p.hush(q) // a killed process sends nothing while it dies
	q.end()
	q.candidate.Close()
	synctest.Wait()
	heard()
	p.net.Lock()
	defer p.net.Unlock()
	for _, w := range p.wires {
		switch q.name {
		case w.from:
			w.newest().end(q.proof[:])
		case w.to:
			w.newest().end(nil)
		}
	}
}

// hush drops the answers of a process until heard is called.
func (p *peerage) hush(q *process) (heard func()) {
	p.net.Lock()
	defer p.net.Unlock()
	var hushed []*cable
	for _, w := range p.wires {
		if w.to == q.name && w.down.CompareAndSwap(false, true) {
			hushed = append(hushed, w.cable)
		}
	}
	return func() {
		for _, c := range hushed {
			c.down.Store(false)
		}
	}
}

func (p *peerage) endAll() {
	for _, q := range p.process {
		q.end()
		q.candidate.Close()
		<-q.over
	}
}

// settled waits until the number of voters is as given, and the coordinator has told all nodes
// about them.
func (p *peerage) settled(voters int) {
	p.t.Helper()
	for range 600 {
		n := 0
		for _, q := range p.process {
			if len(q.candidate.election.Others()) == voters-1 && !p.dead[q.name] {
				n++
			}
		}
		if n >= voters {
			synctest.Wait()
			return
		}
		time.Sleep(lease / 100)
	}
	p.t.Fatalf("there are no %d voters: %s", voters, p.warnings)
}

// ended checks that these agents learned that the job succeeded in this number of attempts.
func (p *peerage) ended(attempts int, all ...*process) {
	p.t.Helper()
	for _, q := range all {
		select {
		case <-q.done:
		case <-time.After(10 * lease):
			p.t.Fatalf("%s does not end\n%s\n%s", q.name, strings.Join(p.decided(), "\n"), strings.Join(p.warnings, "\n"))
		}
		if q.finish == nil || q.finish.Result.Code != 0 || q.finish.Result.Attempts != attempts {
			p.t.Errorf("%s ends with %+v, %v; want code 0 after %d attempts\n%s", q.name, q.finish, q.Err(), attempts,
				strings.Join(p.decided(), "\n"))
		}
	}
}

// agree checks that all these agents get the same result, a success.
func (p *peerage) agree(left []*process) {
	p.t.Helper()
	for _, a := range left {
		select {
		case <-a.done:
		case <-time.After(20 * lease):
			p.t.Fatalf("%s does not end", a.name)
		}
		if a.finish == nil || a.finish.Result.Code != 0 {
			p.t.Fatalf("%s ends with %+v, %v\n%s\n%s", a.name, a.finish, a.Err(), strings.Join(p.decided(), "\n"), strings.Join(p.warnings, "\n"))
		}
		if !reflect.DeepEqual(a.finish, left[0].finish) {
			p.t.Errorf("%s ends with %+v, and %s with %+v", a.name, a.finish, left[0].name, left[0].finish)
		}
	}
}

// secondIsLast lets ranks run until they are killed. The ranks of a restart do their work and exit.
func secondIsLast(attempt int) (int, bool) { return 0, attempt > 0 }

func (p *peerage) addAll(n int, exit func(int) (int, bool)) []*process {
	for i := range n {
		p.add(i+1, exit)
	}
	return p.process
}
