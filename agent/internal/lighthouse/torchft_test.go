package lighthouse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/golaunch/golaunch/agent/internal/lighthouse/torchftpb"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// patience bounds each wait of a test.
const patience = 30 * time.Second

// torchft is a Python with torchft's extension.
type torchft struct {
	t     *testing.T
	in    io.Writer
	lines chan string
}

// versions returns the directories of torchft's versions. "" is the version of the Python itself.
func versions(t *testing.T) (python string, dirs []string) {
	python = suite.Optional(t, "GOLAUNCH_TEST_TORCHFT", "Python with torchft")
	dirs = []string{""}
	if nightly := filepath.Join(filepath.Dir(filepath.Dir(python)), "nightly", "torchft"); exists(nightly) {
		dirs = append(dirs, nightly)
	}
	return python, dirs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func startTorchft(t *testing.T, python, dir string) *torchft {
	t.Helper()
	args := []string{"testdata/drive.py"}
	if dir != "" {
		args = append(args, dir)
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(cmd.Environ(), "RUST_LOG=error")
	in, out := pipetest.Start(t, cmd)
	p := &torchft{t: t, in: in, lines: make(chan string, 256)}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return p
}

func (p *torchft) do(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// next returns the next line.
func (p *torchft) next() string {
	p.t.Helper()
	select {
	case line, open := <-p.lines:
		if !open {
			p.t.Fatal("torchft has ended")
		}
		return line
	case <-time.After(patience):
		p.t.Fatal("torchft says nothing")
		return ""
	}
}

// real starts torchft's lighthouse.
func (p *torchft) real(name string, o lighthouse.Options) pb.LighthouseServiceClient {
	p.t.Helper()
	p.do("lighthouse %s %d %d %d", name, o.MinReplicas, o.JoinTimeout.Milliseconds(), o.HeartbeatTimeout.Milliseconds())
	port := strings.Fields(p.next())[1]
	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewLighthouseServiceClient(conn)
}

// call is a request to both lighthouses.
type call struct {
	request lighthouse.Request
	answer  chan *pb.Quorum
}

// pair is torchft's lighthouse beside the rules of this project. Both get the same requests.
type pair struct {
	ctx   context.Context
	real  pb.LighthouseServiceClient
	ours  *lighthouse.State
	calls []*call
	last  int64
	// slow is how often the pair asks until it assumes that torchft's lighthouse has received a
	// request. That lighthouse may take two requests in either order.
	slow int
}

// TestRules sends the same random requests to torchft's lighthouse and ours, and compares each
// quorum.
func TestRules(t *testing.T) {
	python, _ := versions(t)
	p := startTorchft(t, python, "")
	steps := 2000
	if suite.All() {
		steps = 100_000
	}
	const each = 250
	for seed := range uint64(steps / each) {
		err := p.compare(seed, each, 1)
		if err != nil {
			err = p.compare(seed, each, 50)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// compare makes some random requests and compares the answers.
func (p *torchft) compare(seed uint64, steps, slow int) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	o := lighthouse.Options{MinReplicas: 1 + rng.IntN(3), JoinTimeout: time.Hour, HeartbeatTimeout: time.Hour}
	name := fmt.Sprintf("s%d-%d", seed, slow)
	ctx, cancel := context.WithCancel(p.t.Context())
	defer func() {
		cancel()
		p.do("close %s", name)
		p.next()
	}()
	both := &pair{ctx: ctx, real: p.real(name, o), ours: lighthouse.New(o, 0, nil, time.Now()), slow: slow}
	known, shrinks := 1, rng.IntN(2) == 0
	for i := range steps {
		if rng.IntN(12) == 0 && known < 6 {
			known++
		}
		id := fmt.Sprintf("r%d", rng.IntN(known))
		var err error
		if rng.IntN(10) == 0 {
			err = both.beat(id)
		} else {
			m := &pb.QuorumMember{ReplicaId: id, Step: int64(i), StoreAddress: "store", ShrinkOnly: shrinks && rng.IntN(10) == 0}
			if shrinks && both.waits(id) { // of two requests that a quorum leaves out, either may come back last
				continue
			}
			if rng.IntN(8) == 0 {
				m.CommitFailures = 1
			}
			err = both.ask(m)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func (p *pair) waits(id string) bool {
	return slices.ContainsFunc(p.calls, func(c *call) bool { return c.request.ID == id })
}

func (p *pair) beat(id string) error {
	if _, err := p.real.Heartbeat(p.ctx, &pb.LighthouseHeartbeatRequest{ReplicaId: id}); err != nil {
		return err
	}
	return p.check(p.ours.Step(time.Now(), lighthouse.Heartbeat{Replica: lighthouse.Replica{ID: id}}))
}

func (p *pair) ask(m *pb.QuorumMember) error {
	p.last++
	c := &call{answer: make(chan *pb.Quorum, 1), request: lighthouse.Request{
		Replica: lighthouse.Replica{ID: m.GetReplicaId()}, Call: p.last, ShrinkOnly: m.GetShrinkOnly(), CommitFailures: m.GetCommitFailures(),
		Member: fmt.Append(nil, m.GetStep()),
	}}
	p.calls = append(p.calls, c)
	go func() {
		if r, err := p.real.Quorum(p.ctx, &pb.LighthouseQuorumRequest{Requester: m}); err == nil {
			c.answer <- r.GetQuorum()
		}
	}()
	for range p.slow {
		if _, err := p.real.Heartbeat(p.ctx, &pb.LighthouseHeartbeatRequest{ReplicaId: m.GetReplicaId()}); err != nil {
			return err
		}
	}
	return p.check(p.ours.Step(time.Now(), lighthouse.Asked{Request: c.request}))
}

// check compares the answers to the requests that our rules have just answered. It also checks that
// no other request is answered.
func (p *pair) check(o lighthouse.Outcome) error {
	if o.Cohort != nil {
		for _, m := range o.Cohort.Members {
			if err := p.answered(m, o.Cohort); err != nil {
				return err
			}
		}
	}
	for _, left := range o.Left {
		left.Again = true
		if again := p.ours.Step(time.Now(), lighthouse.Asked{Request: left}); again.Cohort != nil {
			return fmt.Errorf("%s makes a quorum although it was left out", left.ID)
		}
	}
	for _, c := range p.calls {
		select {
		case q := <-c.answer:
			return fmt.Errorf("torchft's has quorum %v, ours none for %s: %s", q, c.request.ID, o.Why)
		default:
		}
	}
	return nil
}

// answered compares the answers to all requests of a member.
func (p *pair) answered(m lighthouse.Request, want *lighthouse.Cohort) error {
	for _, c := range p.calls {
		if c.request.ID != m.ID {
			continue
		}
		select {
		case got := <-c.answer:
			if got.GetQuorumId() != want.ID || describe(got) != members(want) || got.GetCreated() == nil {
				return fmt.Errorf("torchft's quorum is %d (%s), ours %d (%s)", got.GetQuorumId(), describe(got), want.ID, members(want))
			}
		case <-time.After(patience / 10):
			return fmt.Errorf("ours has quorum %d (%s), torchft's none for %s", want.ID, members(want), m.ID)
		}
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *call) bool { return c.request.ID == m.ID })
	return nil
}

func describe(q *pb.Quorum) (text string) {
	for _, m := range q.GetParticipants() {
		text += fmt.Sprintf("%s at %d ", m.GetReplicaId(), m.GetStep())
	}
	return text
}

func members(q *lighthouse.Cohort) (text string) {
	for _, m := range q.Members {
		text += fmt.Sprintf("%s at %s ", m.ID, m.Member)
	}
	return text
}
