package hyperpod

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

func TestMain(m *testing.M) { suite.Main(m) }

// patience bounds each wait of a test.
const patience = 60 * time.Second

// bed is a job of several nodes with a store.
type bed struct {
	t     *testing.T
	store *tcpstore.Store
	world int
	limit time.Duration
	// settle is the settle time of the servers.
	settle time.Duration
	warns  chan string
	ends   chan string
}

func newBed(t *testing.T, world int, limit time.Duration) *bed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, settle: settle, world: world, limit: limit, warns: make(chan string, 64), ends: make(chan string, 64)}
	if b.store, err = tcpstore.Serve(l, tcpstore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.store.Close)
	return b
}

// serve serves n ranks of a node, starting with the rank first.
func (b *bed) serve(node, first, n, attempt int, saves *Saves) *Server {
	b.t.Helper()
	o := Options{
		World: b.world, Attempt: attempt, Node: node, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(node)}), Limit: b.limit, Store: b.store.Addr(),
		Saves: saves, UID: os.Geteuid(), GID: os.Getegid(), settle: b.settle, Mine: func(int) bool { return true }, Warn: func(err error) { b.warns <- err.Error() },
		Restart: func(rank int, why string) { b.ends <- fmt.Sprintf("%d: %s", rank, why) },
	}
	for i := range n {
		o.Ranks = append(o.Ranks, Rank{Rank: first + i, Own: first + i, LocalRank: i, Env: map[string]string{"RANK": fmt.Sprint(first + i)}})
	}
	s, err := Serve(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// program plays a rank.
type program struct {
	t    *testing.T
	conn net.Conn
}

func (b *bed) connect(s *Server, place int) *program {
	b.t.Helper()
	conn, err := net.DialTimeout("unix", s.Path(place), patience)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	p := &program{b.t, conn}
	p.say(`{"type": "init", "client_id": "a", "local_rank": 0}`)
	p.hear(`"type":"job_rank_info"`)
	return p
}

func (p *program) say(text string) {
	p.t.Helper()
	if _, err := p.conn.Write(ranksocket.Frame([]byte(text))); err != nil {
		p.t.Fatal(err)
	}
}

// hear waits for a message with some words. It skips repeated faults.
func (p *program) hear(words ...string) string {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	for {
		text, err := ranksocket.ReadFrame(p.conn)
		if err != nil {
			p.t.Fatalf("%v; want %q", err, words)
		}
		if !strings.Contains(string(text), words[0]) {
			continue
		}
		for _, w := range words {
			if !strings.Contains(string(text), w) {
				p.t.Fatalf("a rank is told %s; want %q", text, w)
			}
		}
		return string(text)
	}
}

const (
	barrier = `{"type": "at_rcb_barrier", "client_id": "a"}`
	past    = `{"type": "past_rcb_barrier", "client_id": "a"}`
)

// start makes all ranks come to the barrier and pass it.
func start(count string, all ...*program) {
	for _, p := range all {
		p.say(barrier)
	}
	for _, p := range all {
		p.t.Helper()
		p.hear(`"TORCHELASTIC_RESTART_COUNT":"`+count+`"`, `"type":"job_start"`)
		p.say(past)
	}
}

// TestRounds lets ranks of two nodes restart within their processes. The process of one rank starts
// anew.
func TestRounds(t *testing.T) {
	b := newBed(t, 3, time.Hour)
	a, c := b.serve(0, 0, 2, 0, &Saves{}), b.serve(1, 2, 1, 0, &Saves{})
	defer a.Close()
	zero, one, two := b.connect(a, 0), b.connect(a, 1), b.connect(c, 0)
	torch, err := tcpstore.DialUnlisted(t.Context(), b.store.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer torch.Close()
	const address = "default_pg/0//rank_1"
	if err := torch.Set(t.Context(), address, []byte("127.0.0.1:4711")); err != nil {
		t.Fatal(err)
	}
	has := func(count string, want bool) {
		t.Helper()
		if got, err := torch.Check(t.Context(), address); err != nil || got != want {
			t.Errorf("run %s finds an address from before it: %v, %v; want %v", count, got, err, want)
		}
	}
	start("0", zero, one, two)
	has("0", true)
	if n := len(b.store.Status().Clients); n != 0 {
		t.Errorf("%d clients of golaunch count as ranks", n)
	}

	one.say(`{"type": "job_data", "client_id": "a", "rank": 1, "data": "step 7"}`)
	one.say(`{"type": "job_fault", "client_id": "a", "rank": 1, "restart_mode": "in_process_restart", "reason": "NaN"}`)
	for _, p := range []*program{zero, one, two} {
		p.hear(`"type":"job_fault"`, `"restart_count":1`)
	}
	if got := <-b.warns; got != "rank 1 has failed, and all ranks restart within their processes: NaN" {
		t.Errorf("warning %q", got)
	}
	zero.say(barrier)
	one.say(barrier)
	two.say(barrier)
	two.hear(`"TORCHELASTIC_RESTART_COUNT":"1"`, `"type":"job_start"`, `{"group_rank":0,"rank":1,"local_rank":1,"failed":true,"data":"step 7"}`,
		`"rank_ips":[{"rank":0,"ip":"10.0.0.0"},{"rank":1,"ip":"10.0.0.1"}]`)
	has("1", false)

	// The process of rank 2 ends, and starts anew. The others wait for it at the barrier.
	c.Ended(2)
	c.Close()
	zero.hear(`"type":"job_fault"`, `"restart_count":2`)
	next := b.serve(1, 2, 1, 1, &Saves{})
	defer next.Close()
	start("2", zero, one, b.connect(next, 0))
}

// TestFaultBeforeStart makes a rank fail before another rank learns that the run has begun. That
// other rank is still at the barrier.
func TestFaultBeforeStart(t *testing.T) {
	b := newBed(t, 2, time.Hour)
	b.settle = time.Hour
	a := b.serve(0, 0, 2, 0, &Saves{})
	defer a.Close()
	zero, one := b.connect(a, 0), b.connect(a, 1)
	comes := func(p *program, place int, told bool) {
		p.say(barrier)
		p.say(`{"type": "ckpt_info_get", "client_id": "a"}`)
		p.hear(`"type":"ckpt_info_get"`)
		if told {
			a.mu.Lock()
			a.places[place].heard = time.Time{}
			a.mu.Unlock()
		}
	}
	comes(zero, 0, true)
	comes(one, 1, false)
	zero.hear(`"type":"job_start"`)
	zero.say(`{"type": "job_fault", "client_id": "a", "rank": 0, "restart_mode": "in_process_restart"}`)
	zero.hear(`"type":"job_fault"`)
	a.mu.Lock()
	a.places[1].heard = time.Time{}
	a.mu.Unlock()
	zero.say(barrier)
	one.hear(`"type":"job_start"`, `"TORCHELASTIC_RESTART_COUNT":"1"`)
}

// TestNodeIsLost checks that ranks on a replacement node end the run of the ranks on other nodes.
func TestNodeIsLost(t *testing.T) {
	b := newBed(t, 2, time.Hour)
	a, c := b.serve(0, 0, 1, 0, &Saves{}), b.serve(1, 1, 1, 0, &Saves{})
	defer a.Close()
	zero, one := b.connect(a, 0), b.connect(c, 0)
	start("0", zero, one)
	c.Close()
	next := b.serve(2, 1, 1, 1, &Saves{})
	defer next.Close()
	zero.hear(`"type":"job_fault"`, `"restart_count":1`)
	start("1", zero, b.connect(next, 0))
}

// TestCountedTwice checks that a rank that starts anew at the barrier delays no other rank.
func TestCountedTwice(t *testing.T) {
	b := newBed(t, 2, time.Hour)
	a, c := b.serve(0, 0, 1, 0, &Saves{}), b.serve(1, 1, 1, 0, &Saves{})
	defer c.Close()
	b.connect(a, 0).say(barrier)
	awaitKey(t, b.store, key("ranks", 0))
	a.Close()
	next := b.serve(0, 0, 1, 1, &Saves{})
	defer next.Close()
	zero, one := b.connect(next, 0), b.connect(c, 0)
	zero.say(barrier)
	zero.hear(`"type":"job_start"`)
	one.say(barrier) // its arrival ends the run, which began without it
	zero.hear(`"type":"job_fault"`)
	zero.say(barrier)
	zero.hear(`"type":"job_start"`)
	one.hear(`"type":"job_start"`)
}

func awaitKey(t *testing.T, s *tcpstore.Store, key string) {
	t.Helper()
	c, err := tcpstore.Dial(t.Context(), s.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Wait(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// TestLate checks that a rank that does not come back is overdue, and that a rank that does come
// back is not.
func TestLate(t *testing.T) {
	b := newBed(t, 2, time.Second)
	a := b.serve(0, 4, 2, 0, &Saves{})
	defer a.Close()
	zero, one := b.connect(a, 0), b.connect(a, 1)
	start("0", zero, one)
	zero.say(`{"type": "job_fault", "client_id": "a", "rank": 4, "restart_mode": "in_process_restart"}`)
	zero.say(barrier)
	due := func() {
		t.Helper()
		select {
		case <-a.Due():
		case <-time.After(patience):
			t.Fatalf("no rank was overdue for %v: %+v", patience, a.Waits())
		}
	}
	due()
	if w := a.Waits(); len(w) != 1 || !w[0].Overdue || w[0].Rank != 5 || w[0].Does != "on its way back to the barrier, which may take 1s" {
		t.Errorf("%+v", w)
	}
	one.say(barrier)
	one.hear(`"type":"job_start"`)
	due()
	if w := a.Waits(); len(w) != 2 || w[0].Overdue || w[1].Overdue {
		t.Errorf("%+v", w)
	}
	one.say(`{"type": "job_fault", "client_id": "a", "rank": 5, "restart_mode": "local_process_level_restart", "message": "no\nmemory"}`)
	if got := <-b.ends; got != "5: no memory" {
		t.Errorf("%q was asked for", got)
	}
}

// TestSaves checks which checkpoint the ranks learn.
func TestSaves(t *testing.T) {
	b := newBed(t, 2, time.Hour)
	a, c := b.serve(0, 0, 1, 0, &Saves{}), b.serve(1, 1, 1, 0, &Saves{})
	defer a.Close()
	defer c.Close()
	both := []*program{b.connect(a, 0), b.connect(c, 0)}
	start("0", both...)
	saved := func(p *program, step int) {
		p.say(fmt.Sprintf(`{"type": "ckpt_info_update", "client_id": "a", "step": %d, "path": "/c/%d", "checkpoint_type": "model_checkpoint"}`, step, step))
	}
	newest := func(p *program, want string) {
		t.Helper()
		p.say(`{"type": "ckpt_info_get", "client_id": "a"}`)
		p.hear(`"type":"ckpt_info_get"`, `"path":`+want)
	}
	for _, p := range both {
		p.say(`{"type": "ckpt_init", "client_id": "a", "prefix": "/c", "checkpoint_types": {"model_checkpoint": 1, "data_checkpoint": 0}}`)
		newest(p, "null")
		saved(p, 10)
		newest(p, `"/c/10"`)
	}
	saved(both[0], 20)
	newest(both[0], `"/c/20"`)
	for _, p := range both {
		p.say(barrier)
	}
	for _, p := range both {
		p.hear(`"TORCHELASTIC_RESTART_COUNT":"1"`, `"type":"job_start"`)
		newest(p, `"/c/10"`) // the newest checkpoint that both nodes have
	}
}

// TestRefused checks that the server ends a connection with a message that no client sends.
func TestRefused(t *testing.T) {
	b := newBed(t, 1, time.Hour)
	s := b.serve(0, 0, 1, 0, &Saves{})
	defer s.Close()
	for text, want := range map[string]string{
		"x":                                   "no JSON object",
		`{"type": "init"}`:                    "without a client_id",
		`{"type": "tea", "client_id": "a"}`:   `a message of the type "tea"`,
		`{"type": "init", "client_id": 5}`:    "no JSON object",
		`{"type":"job_data","client_id":"a"}`: "the data of a rank may have 4096 bytes",
		`{"type":"ckpt_info_update","client_id":"a","checkpoint_type":"c"}`: "a kind that was not announced",
	} {
		p := b.connect(s, 0)
		p.say(text)
		if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if got, err := ranksocket.ReadFrame(p.conn); err == nil {
			t.Errorf("%s: answered with %s", text, got)
		}
		if got := <-b.warns; !strings.Contains(got, want) {
			t.Errorf("%s: warning %q, want one with %q", text, got, want)
		}
	}
	start("0", b.connect(s, 0))
}

// TestFaultsInARow has a rank that fails in each run. In the end its process restarts. After a run
// that lasts long enough, the server counts anew. It warns of each restart, although a rank repeats
// its faults.
func TestFaultsInARow(t *testing.T) {
	const fault = `{"type": "job_fault", "client_id": "a", "rank": 0, "restart_mode": "in_process_restart", "reason": "NaN"}`
	b := newBed(t, 1, time.Hour)
	b.settle = time.Millisecond
	s := b.serve(0, 0, 1, 0, &Saves{})
	defer s.Close()
	p, runs := b.connect(s, 0), 0
	fail := func() {
		t.Helper()
		start(fmt.Sprint(runs), p)
		runs++
		p.say(fault)
		p.hear(`"type":"job_fault"`)
		if got := <-b.warns; !strings.Contains(got, "all ranks restart within their processes: NaN") {
			t.Errorf("run %d: warning %q", runs, got)
		}
	}
	for range maxShort {
		fail()
	}
	s.mu.Lock()
	s.o.Limit = 0
	s.mu.Unlock()
	fail()
	s.mu.Lock()
	s.o.Limit = time.Hour
	s.mu.Unlock()
	for range maxShort {
		fail()
	}
	start(fmt.Sprint(runs), p)
	p.say(fault)
	if got, want := <-b.ends, "0: NaN; 11 runs in a row have ended within 1h0m0s"; got != want {
		t.Errorf("it restarts %q, want %q", got, want)
	}
}

// FuzzMessage checks that no message does harm.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(barrier))
	f.Add([]byte(`{"type": "ckpt_init", "client_id": "a", "checkpoint_types": {"m": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parse(text); err == nil {
			if _, err := json.Marshal(m); err != nil {
				t.Error(err)
			}
		}
	})
}
