package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/sampling"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous"
)

// patience bounds every wait for a process in these tests.
const patience = time.Minute

var local = placement.Node{Name: "n1", Addr: netip.MustParseAddr("127.0.0.1"), CPUs: 2}

// lines keeps the written text, and wakes goroutines that wait for a part of it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the text contains part.
func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(patience)
	for {
		l.mu.Lock()
		found, more := strings.Contains(l.text.String(), part), l.more
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("no %q in:\n%s", part, l)
		}
	}
}

// world is a coordinator and one of its agents.
type world struct {
	*membership
	coordinator *rendezvous.Coordinator
	journal     *lines
	screen      *lines
	logs        string
	// result receives what the coordinator's Run returned.
	result chan report.Result
	cancel context.CancelFunc
	// work is what Open returns for the only job.
	work Work
}

// newWorld starts a coordinator for a job and an agent that has joined it, to run a shell script in
// each rank. Both end with the test. A warning of the agent fails the test.
func newWorld(t *testing.T, spec job.Spec, script string) *world {
	t.Helper()
	return newWorldOn(t, local, spec, script)
}

// newWorldOn is newWorld with another node than local.
func newWorldOn(t *testing.T, node placement.Node, spec job.Spec, script string) *world {
	t.Helper()
	w := &world{journal: newLines(), screen: newLines(), logs: t.TempDir(), result: make(chan report.Result, 1)}
	warn := func(err error) { t.Errorf("warning: %v", err) }
	spec.ID = "test"
	if spec.Request.MaxNodes == 0 {
		spec.Request.MinNodes, spec.Request.MaxNodes = 1, 1
	}
	spec.Request.PerNode = []int{2}
	w.coordinator = rendezvous.NewCoordinator(rendezvous.Config{
		Job: &replica.Submission{Spec: cluster.Spec{Job: spec}}, Journal: w.journal, Warn: warn,
	})
	listener, dial := wiretest.Pipe()
	served := make(chan error, 1)
	go func() { served <- w.coordinator.Serve(listener, nil) }()
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() {
		result, err := w.coordinator.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		w.result <- result
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	supervisor, err := proc.New(proc.Options{Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := logs.Access{}.OpenDir(w.logs, "test")
	if err != nil {
		t.Fatal(err)
	}
	console := console.New(w.screen, w.screen)
	t.Cleanup(func() {
		if err := errors.Join(supervisor.Close(), dir.Close(), console.Close()); err != nil {
			t.Error(err)
		}
	})
	joined, err := session.Join(ctx, session.Options{Target: "the test", Dial: dial, Node: node, Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	w.work = Work{
		Task: Task{
			Command: []string{"sh", "-c", script}, Dir: t.TempDir(), Visibility: rankenv.SeeJob,
			Env: rankenv.Merge(rankenv.Layers{Inherited: os.Environ()}),
		},
		Output: Output{Dir: dir, Of: func(s Speaker) logs.RankOptions {
			return logs.RankOptions{
				Node: s.Node, Attempt: s.Attempt, Rank: s.Rank, Console: console, Prefix: fmt.Sprintf("[r%d %s] ", s.Rank, s.Node), Warn: warn,
			}
		}},
	}
	w.membership = &membership{
		session: joined, starter: ranks.Starter{Supervisor: supervisor},
		Agent: Agent{Warn: warn, Grace: patience, Open: func(string, Assignment, netip.Addr) (Work, error) { return w.work, nil }},
	}
	return w
}

// file returns the content of a file in the ranks' working directory.
func (w *world) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.work.Task.Dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunToTheEnd(t *testing.T) {
	w := newWorld(t, job.Spec{MaxRestarts: 1}, `echo attempt $GOLAUNCH_ATTEMPT of rank $RANK; exit $((RANK == 1 && GOLAUNCH_ATTEMPT == 0))`)
	result, err := w.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	decided := <-w.result
	if result.Code != 0 || result.Attempts != 2 || result.Reason != decided.Reason {
		t.Errorf("the agent was told %+v, the coordinator decided %+v", result, decided)
	}
	w.screen.await(t, "[r0 n1] attempt 1 of rank 0\n")
	w.screen.await(t, "[r1 n1] attempt 1 of rank 1\n")
}

func TestRunEndsWithItsContext(t *testing.T) {
	w := newWorld(t, job.Spec{}, `trap '' TERM; echo up $RANK; sleep 1000 & wait; sleep 1000`)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		w.screen.await(t, "up 0")
		w.screen.await(t, "up 1")
		cancel(errors.New("the test has seen enough"))
	}()
	_, err := w.run(ctx)
	if err == nil || err.Error() != "the test has seen enough" {
		t.Errorf("the error is %v, not the reason of the context", err)
	}
	w.journal.await(t, "the test has seen enough") // the coordinator logs it as the reason why it lost the node
	w.none(t)
}

// none checks that no rank is alive.
func (w *world) none(t *testing.T) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && dir == w.work.Task.Dir {
			t.Errorf("%s is a rank's", link)
		}
	}
}

func TestLeaveStopsTheRanksFirst(t *testing.T) {
	w := newWorld(t, job.Spec{}, `trap 'echo bye $RANK; exit 3' TERM; echo up $RANK; while :; do sleep 0.01; done`)
	leave := make(chan Departure, 1)
	w.Leave = leave
	go func() {
		w.screen.await(t, "up 0")
		w.screen.await(t, "up 1")
		leave <- Departure{Why: "it was asked to"}
	}()
	_, err := w.run(t.Context())
	if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "it was asked to") {
		t.Errorf("the error is %v, not ErrLeft with the reason", err)
	}
	w.screen.await(t, "bye 0")
	w.screen.await(t, "bye 1")
	w.journal.await(t, `"lost"`)
	if strings.Contains(w.journal.String(), `"exited"`) {
		t.Errorf("the exits of ranks that were stopped to leave were reported:\n%s", w.journal)
	}
}

// TestTheEarliestDeparture checks that the earliest departure counts, even if a later one was
// requested last.
func TestTheEarliestDeparture(t *testing.T) {
	w := newWorld(t, job.Spec{}, `while :; do sleep 0.01; done`)
	leave := make(chan Departure, 2)
	w.Leave = leave
	leave <- Departure{Why: "soon", Within: 100 * time.Millisecond}
	leave <- Departure{Why: "late", Within: time.Hour}
	if _, err := w.run(t.Context()); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "soon") {
		t.Errorf("the error is %v, not ErrLeft with the reason", err)
	}
}

func TestSignalsReachEveryRank(t *testing.T) {
	w := newWorld(t, job.Spec{}, `trap 'echo told $RANK; exit 0' USR1; echo up $RANK; while :; do sleep 0.01; done`)
	signals := make(chan syscall.Signal, 1)
	w.Signals = signals
	go func() {
		w.screen.await(t, "up 0")
		w.screen.await(t, "up 1")
		w.journal.await(t, `"started"`) // a process is known a moment after it began
		signals <- syscall.SIGUSR1
	}()
	if result, err := w.run(t.Context()); err != nil || result.Code != 0 {
		t.Errorf("code %d (%v), want 0", result.Code, err)
	}
	w.screen.await(t, "told 0")
	w.screen.await(t, "told 1")
}

// obeying returns a world whose agent gets its orders from the test. Its coordinator waits for a
// second node and sends no orders.
func obeying(t *testing.T, script string) *world {
	t.Helper()
	return obeyingOn(t, local, script)
}

// obeyingOn is obeying with another node than local.
func obeyingOn(t *testing.T, node placement.Node, script string) *world {
	t.Helper()
	w := newWorldOn(t, node, job.Spec{Request: placement.Request{MinNodes: 2, MaxNodes: 2}}, script)
	w.jobs, w.broken, w.queries.ctx = map[string]*jobOnNode{}, make(chan error, 1), t.Context()
	w.sampler = sampling.New(w.Warn)
	w.open("test", keptJob{})
	t.Cleanup(func() {
		for _, s := range w.jobs {
			s.kill()
		}
		w.living.Wait()
		w.queries.running.Wait()
		w.session.Close("the test is over")
	})
	w.jobs["test"].stores.Admit(nil) // as the coordinator's first Prepare does
	return w
}

// order makes the agent execute an order for the only job.
func (w *world) order(do any) { w.execute(wire.Order{Job: "test", Do: do}) }

// quiet waits until no attempt that was ordered so far lives.
func (w *world) quiet() {
	for _, u := range w.jobs["test"].attempts {
		<-u.gone
	}
}

func startOf(n int) job.Start {
	return job.Start{
		Attempt: n,
		Group:   placement.Group{Node: local, Bundles: []placement.Bundle{{Rank: 0, LocalRank: 0}, {Rank: 1, LocalRank: 1}}},
		World:   job.World{WorldSize: 2, Nodes: 1, MasterAddr: "127.0.0.1", MasterPort: 29500, LocalSize: 2},
	}
}

const trace = `echo $GOLAUNCH_ATTEMPT.$RANK >>trace`

func TestOrdersThatComeTwice(t *testing.T) {
	w := obeying(t, trace)
	w.order(startOf(0))
	w.order(startOf(0))
	w.quiet()
	w.order(startOf(0))
	w.order(job.Stop{Node: "n1", Attempt: 0})
	w.order(job.Stop{Node: "n1", Attempt: 0})
	w.quiet()
	if got := len(strings.Fields(w.file(t, "trace"))); got != 2 {
		t.Errorf("%d ranks were started, want 2", got)
	}
}

func TestOrdersThatComeLate(t *testing.T) {
	w := obeying(t, trace)
	w.order(job.Stop{Node: "n1", Attempt: 1, Grace: time.Hour})
	w.journal.await(t, `"stopped"`)
	w.order(startOf(1))
	w.order(startOf(0))
	w.quiet()
	if got := w.file(t, "trace"); got != "" {
		t.Errorf("started after it was stopped: %q", got)
	}
	w.order(startOf(2))
	w.order(job.Stop{Node: "n1", Attempt: 1}) // the stop of an old attempt does not stop the new one
	w.quiet()
	if got := w.file(t, "trace"); !strings.Contains(got, "2.0\n") || !strings.Contains(got, "2.1\n") {
		t.Errorf("attempt 2 left %q, want both ranks", got)
	}
}

// TestAttemptsNeverOverlap tests the barrier with orders that come too early. Each rank must get a
// lock that all processes of the previous attempt hold.
func TestAttemptsNeverOverlap(t *testing.T) {
	w := obeying(t, `exec 9>>lock-$RANK; flock -n 9 || echo $GOLAUNCH_ATTEMPT.$RANK >>overlap
echo up $GOLAUNCH_ATTEMPT.$RANK; [ $GOLAUNCH_ATTEMPT = 2 ] || { trap '' TERM; setsid sleep 1000 & sleep 1000; }`)
	for n := range 2 {
		w.order(startOf(n))
		w.screen.await(t, fmt.Sprintf("up %d.0", n))
		w.screen.await(t, fmt.Sprintf("up %d.1", n))
	}
	w.order(startOf(2))
	w.quiet()
	if got := w.file(t, "overlap"); got != "" {
		t.Errorf("these started while processes of the attempt before held their lock: %q", got)
	}
	w.screen.await(t, "up 2.0")
}

// TestOldAttemptsEndToo stops an agent that received an order for an attempt while the previous
// attempt ran.
func TestOldAttemptsEndToo(t *testing.T) {
	w := obeying(t, `trap '' TERM; echo up $GOLAUNCH_ATTEMPT; sleep 1000`)
	w.order(startOf(0))
	w.screen.await(t, "up 0")
	w.order(job.Stop{Node: "n1", Attempt: 1})
	w.quiet()
	w.none(t)
}

func TestACommandThatCannotStart(t *testing.T) {
	w := newWorld(t, job.Spec{MaxRestarts: 5}, "")
	w.work.Task.Command = []string{"./no-such-program"}
	result, err := w.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 127 || result.Restarts != 0 || !strings.Contains(result.Reason, "no-such-program") {
		t.Errorf("%+v, want code 127 without a restart and the program named", result)
	}
}

func TestLogsThatCannotBeMade(t *testing.T) {
	w := newWorld(t, job.Spec{MaxRestarts: 5}, "exit 0")
	if err := os.WriteFile(filepath.Join(w.logs, "test", "attempt-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := w.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 125 || !strings.Contains(result.Reason, "attempt-0") {
		t.Errorf("%+v, want code 125 and the file named", result)
	}
}
