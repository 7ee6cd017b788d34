package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

const swarmVariable = "GOLAUNCH_SCALE_SWARM"

// swarmOf is a process with agents.
func swarmOf(ctx context.Context, from, to, ranks int, loud bool, target string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d %v %s", swarmVariable, from, to, ranks, loud, target))
	return cmd
}

// swarm has the agents in one process. It reports when all of them have carried out an order.
type swarm struct {
	ranks  int
	target string
	// loud agents send the evidence of all ranks, as if each had failed in its own way.
	loud   bool
	token  mtls.Token
	start  time.Time
	agents []*puppet

	// made counts the connections.
	made atomic.Int64

	mu   sync.Mutex
	done map[string]int
	late time.Duration
}

// runSwarm obeys standard input until it ends.
func runSwarm(words string) error {
	s := &swarm{start: time.Now(), done: map[string]int{}}
	var from, to int
	if _, err := fmt.Sscan(words, &from, &to, &s.ranks, &s.loud, &s.target); err != nil {
		return err
	}
	var err error
	if s.token, err = mtls.LoadToken("", os.Getenv("GOLAUNCH_TOKEN")); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		s.agents = append(s.agents, &puppet{swarm: s, node: s.node(i), started: map[string]job.Start{}})
	}
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		switch commands.Text() {
		case "join":
			go s.join()
		case "fail":
			for _, a := range s.agents {
				go a.fail()
			}
		case "late":
			s.mu.Lock()
			fmt.Println("late", s.late.Seconds())
			s.late = 0
			s.mu.Unlock()
		case "made":
			fmt.Println("made", s.made.Swap(0))
		}
	}
	return nil
}

func (s *swarm) node(i int) placement.Node {
	n := placement.Node{Name: fmt.Sprint("a", i), Addr: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), CPUs: 192}
	for gpu := range s.ranks {
		n.GPUs = append(n.GPUs, placement.GPU{Index: gpu, UUID: fmt.Sprintf("GPU-%08d-%04d-0000-0000-000000000000", i, gpu)})
	}
	return n
}

// atOnce is how many agents of a process join at a time. More agents would have to wait, in the
// middle of a handshake, for this process's share of the cores. Real agents do not share a process.
const atOnce = 256

func (s *swarm) join() {
	places := make(chan struct{}, atOnce)
	for _, a := range s.agents {
		places <- struct{}{}
		go a.live(func() { <-places })
	}
}

// did counts an order that an agent has carried out, and reports when all agents have done so.
func (s *swarm) did(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done[what]++; s.done[what] == len(s.agents) {
		delete(s.done, what)
		fmt.Println(what)
	}
}

// puppet is an agent that reports every order as done.
type puppet struct {
	*swarm
	node    placement.Node
	session *session.Session

	mu      sync.Mutex
	started map[string]job.Start
}

// live runs the agent until it ends.
func (a *puppet) live(joined func()) {
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.node.Addr, 0))}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			a.made.Add(1)
		}
		return conn, err
	}
	targets, elsewhere := strings.Split(a.target, ","), []string(nil)
	if len(targets) > 1 {
		elsewhere = targets
	}
	s, err := session.Join(context.Background(), session.Options{
		Target: targets[0], Elsewhere: elsewhere, Node: a.node, TLS: mtls.Client(a.token, mtls.Identity{Node: a.node.Name}),
		Dial:   func(ctx context.Context) (net.Conn, error) { return dial(ctx, targets[0]) },
		DialAt: dial, Clock: a.clock, Heard: a.heard, Warn: func(error) {},
	})
	joined()
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	a.session = s
	a.did("joined")
	for o := range s.Orders() {
		a.obey(o)
	}
	if err := s.Err(); err != nil {
		fmt.Println("error:", a.node.Name, err)
	}
}

func (a *puppet) clock() time.Duration { return time.Since(a.start) }

// heard measures the time of a heartbeat.
func (a *puppet) heard(at, _ time.Duration) {
	took := a.clock() - at
	a.swarm.mu.Lock()
	defer a.swarm.mu.Unlock()
	a.late = max(a.late, took)
}

func (a *puppet) obey(o wire.Order) {
	switch do := o.Do.(type) {
	case job.Prepare:
		a.session.Report(o.Job, job.Prepared{Unit: do.Unit, Attempt: do.Attempt, Port: 4000})
	case job.Reach:
		a.session.Report(o.Job, job.Reached{Seq: do.Seq})
	case job.Start:
		a.mu.Lock()
		a.started[o.Job] = do
		a.mu.Unlock()
		pids := make([]int, len(do.Group.Bundles))
		for i := range pids {
			pids[i] = 1000 + i
		}
		a.session.Report(o.Job, job.Started{Unit: do.Unit, Attempt: do.Attempt, PIDs: pids})
	case job.Stop:
		a.session.Report(o.Job, job.Stopped{Unit: do.Unit, Attempt: do.Attempt})
	case job.Finish:
		a.mu.Lock()
		delete(a.started, o.Job)
		a.mu.Unlock()
		a.did("finished")
	case wire.Restate:
		a.mu.Lock()
		for id, start := range a.started {
			a.session.Report(id, wire.Opened{})
			a.session.Report(id, job.Started{Unit: start.Unit, Attempt: start.Attempt})
		}
		a.mu.Unlock()
		a.session.Report("", wire.Restated{})
		a.did("restated")
	case wire.Ask:
		go a.answer(o.Job, do)
	}
}

// evidence is the output of a rank before its failure.
var evidence = strings.Repeat("  File \"/opt/train/model.py\", line 1234, in forward\n", 8<<10/53)

// fail makes all ranks fail at once and in the same way, with evidence, and further than in the
// attempt before. Like an agent, it sends the evidence once. Unlike an agent, it knows that all
// failures are the same. An agent takes 5 ms to find this out, and the agents of this process share
// the cores.
func (a *puppet) fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, start := range a.started {
		for i, b := range start.Group.Bundles {
			e := job.Exited{
				Unit: start.Unit, Attempt: start.Attempt, Rank: b.Rank, Exit: report.Exit{Code: 1}, At: time.Now(), Lived: time.Minute,
				Step: int64(start.Attempt + 1), Tail: evidence,
			}
			if i > 0 && !a.loud {
				e.Alike, e.Tail = true, ""
			}
			a.session.Report(id, e)
		}
	}
}

// answer delivers a line of each rank, and continues while they are read.
func (a *puppet) answer(id string, ask wire.Ask) {
	a.mu.Lock()
	start := a.started[id]
	a.mu.Unlock()
	left := start.Group.Bundles
	err := session.Deliver(context.Background(), ask, func(ctx context.Context) (wire.Answer, error) {
		if ask.About != wire.AboutLogs || len(left) == 0 {
			if ask.Follows() {
				<-ctx.Done()
			}
			return wire.Answer{}, io.EOF
		}
		at := report.LogPosition{Attempt: start.Attempt, Rank: left[0].Rank, Stream: 1}
		left = left[1:]
		return wire.Answer{Chunk: &report.LogChunk{LogPosition: at, Data: []byte("a line of this rank\n")}}, nil
	})
	if err != nil && !session.Unread(err) && !errors.Is(err, context.Canceled) {
		fmt.Println("error:", err)
	}
}
