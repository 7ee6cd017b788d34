package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/startcheck"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
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

// clusterAgent is the coordinator of a cluster, a client and one agent. The task of a job is its
// shell script. A job with the script "?" cannot be opened.
type clusterAgent struct {
	*membership
	client *session.Client
	logs   string
	work   string
	// left has what the agent's Run returned.
	left chan error

	// asleep gets each check of the command of a job whose script sleeps. The check lasts until the
	// test ends.
	asleep chan struct{}
	ending context.Context

	mu     sync.Mutex
	closed []string
}

const asleep = ": its file system does not answer"

func (w *clusterAgent) check(c proc.Command) *proc.StartError {
	if slices.Contains(c.Args, asleep) {
		w.asleep <- struct{}{}
		<-w.ending.Done()
	}
	return proc.Check(c)
}

func newClusterAgent(t testing.TB) *clusterAgent {
	t.Helper()
	w := &clusterAgent{logs: t.TempDir(), work: t.TempDir(), left: make(chan error, 1), asleep: make(chan struct{}), ending: t.Context()}
	warn := func(err error) { t.Errorf("warning: %v", err) }
	head := rendezvous.NewCoordinator(rendezvous.Config{Warn: warn})
	listener, dial := wiretest.Pipe()
	hosting, stop := context.WithCancel(context.Background())
	served := make(chan error, 2)
	go func() { served <- head.Serve(listener, nil) }()
	go func() {
		_, err := head.Run(hosting)
		served <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, <-served); err != nil {
			t.Error(err)
		}
	})
	supervisor, err := proc.New(proc.Options{Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	joined, err := session.Join(t.Context(), session.Options{Target: "the test", Dial: dial, Node: local, Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	w.client, err = session.Connect(t.Context(), session.ClientOptions{
		Target: "the test", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.membership = &membership{
		session: joined, starter: ranks.Starter{Supervisor: supervisor}, hooks: testHooks{check: w.check},
		Agent: Agent{
			Warn: warn, Grace: patience, Open: w.ready, Past: func(id string) (*logs.Dir, error) { return logs.Access{}.FindDir(w.logs, id) },
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := w.run(ctx)
		w.left <- err
		close(w.left)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.left
		if err := errors.Join(w.client.Close(), supervisor.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *clusterAgent) ready(id string, as Assignment, _ netip.Addr) (Work, error) {
	if string(as.Task) == "?" {
		return Work{}, errors.New("not a task")
	}
	dir, err := logs.Access{}.OpenDir(w.logs, id)
	if err != nil {
		return Work{}, err
	}
	return Work{
		Task: Task{
			Command: []string{"sh", "-c", string(as.Task)}, Dir: w.work, Visibility: rankenv.SeeJob,
			Env: rankenv.Merge(rankenv.Layers{Inherited: os.Environ()}),
		},
		Output: Output{Dir: dir, Of: func(s Speaker) logs.RankOptions {
			return logs.RankOptions{Node: s.Node, Attempt: s.Attempt, Rank: s.Rank, Warn: w.Warn}
		}},
		Close: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.closed = append(w.closed, id)
			if err := dir.Close(); err != nil {
				w.Warn(err)
			}
		},
	}, nil
}

func (w *clusterAgent) submit(t testing.TB, id, script string) *session.Watch {
	t.Helper()
	watch, err := w.client.Submit(t.Context(), replica.Submission{
		Spec: cluster.Spec{Job: job.Spec{
			ID: id, Grace: patience, Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{2}},
		}},
		Task: []byte(script), Detached: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	return watch
}

// TestAFileSystemThatDoesNotAnswer checks a job whose command is on a file system that hangs. Other
// jobs of the node do not wait for that file system. Once the job is stopped, nothing waits for it.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	w := newClusterAgent(t)
	dead := w.submit(t, "dead", asleep)
	<-w.asleep
	if r := over(t, w.submit(t, "other", "exit 3")); r.Code != 3 {
		t.Errorf("another job: %+v", r)
	}
	if _, err := w.client.Stop(t.Context(), "dead", 143, "enough"); err != nil {
		t.Fatal(err)
	}
	if r := over(t, dead); r.Code != 143 {
		t.Errorf("the job: %+v", r)
	}
}

// TestSlowCommandCheck checks that the error names the file that is checked.
func TestSlowCommandCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warned []string
		forever := make(chan struct{})
		defer close(forever)
		a := &membership{
			Agent: Agent{Warn: func(err error) { warned = append(warned, err.Error()) }},
			hooks: testHooks{check: func(c proc.Command) *proc.StartError {
				c.Looking("/dead/bin/python")
				<-forever
				return nil
			}},
		}
		s := &jobOnNode{node: a, id: "j", opened: opened{work: Work{Task: Task{Command: []string{"python"}, Env: rankenv.Merge(rankenv.Layers{})}}}}
		l := s.checkCommand()
		if s.checkCommand() != l {
			t.Error("two wait for one file system")
		}
		before := time.Now()
		got := l.Wait(t.Context())
		want := report.Exit{Code: 125, Spawn: `start "python": /dead/bin/python has not answered for 5m0s: is its file system there?`}
		if took := time.Since(before); got != want || took != startcheck.CommandLimit {
			t.Errorf("%+v after %v", got, took)
		}
		if want := []string{"job j: /dead/bin/python has not answered for 10s: is its file system there?"}; !slices.Equal(warned, want) {
			t.Errorf("%q", warned)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got := l.Wait(ctx); !got.OK() {
			t.Errorf("%+v after it was stopped", got)
		}
	})
}

// over waits for the end of a job.
func over(t *testing.T, w *session.Watch) report.Result {
	t.Helper()
	for {
		u, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Result != nil {
			return *u.Result
		}
	}
}

// reading is a client that reads the output of a job.
type reading struct {
	*lines
	missing *lines
	done    chan error
}

func (w *clusterAgent) read(t *testing.T, id string, follow bool) reading {
	t.Helper()
	reader, err := w.client.Logs(t.Context(), id, report.LogFilter{Attempt: -1, Follow: follow})
	if err != nil {
		t.Fatal(err)
	}
	r, ended := reading{newLines(), newLines(), make(chan error, 1)}, make(chan struct{})
	t.Cleanup(func() {
		<-ended // it ends with the test's context
		reader.Close()
	})
	go func() {
		defer close(ended)
		for {
			c, err := reader.Next(t.Context())
			if err != nil {
				r.done <- err
				return
			}
			r.Write(c.Data)
			fmt.Fprint(r.missing, c.Missing)
		}
	}()
	return r
}

func TestJobsSideBySide(t *testing.T) {
	w := newClusterAgent(t)
	forever := `echo up $RANK; while :; do sleep 0.01; done`
	a, b := w.submit(t, "a", forever), w.submit(t, "b", forever)
	screenA, screenB := w.read(t, "a", true), w.read(t, "b", true)
	for _, screen := range []reading{screenA, screenB} {
		screen.await(t, "up 0\n")
		screen.await(t, "up 1\n")
	}
	c := w.submit(t, "c", `exit $RANK`)
	if r := over(t, c); r.Code != 1 {
		t.Errorf("c: %+v", r)
	}
	if _, err := w.client.Stop(t.Context(), "a", 143, "enough"); err != nil {
		t.Fatal(err)
	}
	if r := over(t, a); r.Code != 143 {
		t.Errorf("a: %+v", r)
	}
	if err := <-screenA.done; !errors.Is(err, io.EOF) {
		t.Errorf("reading a: %v", err)
	}
	if s, err := w.client.Job(t.Context(), "b"); err != nil || s.Phase != string(job.Running) {
		t.Errorf("b: %+v, %v", s, err)
	}
	if _, err := w.client.Stop(t.Context(), "b", 143, "enough"); err != nil {
		t.Fatal(err)
	}
	if r := over(t, b); r.Code != 143 {
		t.Errorf("b: %+v", r)
	}
}

func TestAJobThatCannotBeOpened(t *testing.T) {
	w := newClusterAgent(t)
	good := w.submit(t, "good", "exit 0")
	r := over(t, w.submit(t, "bad", "?"))
	if r.Code != 125 || !strings.Contains(r.Reason, "not a task") {
		t.Errorf("%+v", r)
	}
	if r := over(t, good); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	past := w.read(t, "bad", false)
	if err := <-past.done; !errors.Is(err, io.EOF) || !strings.Contains(past.missing.String(), "find the logs of job bad") {
		t.Errorf("%v, missing %q", err, past.missing)
	}
}

func TestReadLogsLiveAndPast(t *testing.T) {
	w := newClusterAgent(t)
	gate := filepath.Join(w.work, "gate")
	a := w.submit(t, "a", `echo rank $RANK is up; [ $RANK = 1 ] || { until [ -e gate ]; do sleep 0.01; done; echo the end; }`)
	live := w.read(t, "a", true)
	live.await(t, "rank 0 is up\n")
	live.await(t, "rank 1 is up\n")
	now := w.read(t, "a", false)
	if err := <-now.done; !errors.Is(err, io.EOF) || !strings.Contains(now.String(), "rank 0 is up\n") || strings.Contains(now.String(), "end") {
		t.Errorf("%v, %q", err, now.lines)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := over(t, a); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	if err := <-live.done; !errors.Is(err, io.EOF) || !strings.HasSuffix(live.String(), "the end\n") {
		t.Errorf("%v, %q", err, live.lines)
	}
	past := w.read(t, "a", true)
	if err := <-past.done; !errors.Is(err, io.EOF) || past.String() != "rank 0 is up\nthe end\nrank 1 is up\n" {
		t.Errorf("%v, %q", err, past.lines)
	}
}

func TestADrainedNodeLeaves(t *testing.T) {
	w := newClusterAgent(t)
	a := w.submit(t, "a", `echo up; until [ -e gate ]; do sleep 0.01; done`)
	w.read(t, "a", true).await(t, "up\n")
	if jobs, err := w.client.Drain(t.Context(), "n1"); err != nil || !slices.Equal(jobs, []string{"a"}) {
		t.Fatalf("%v, %v", jobs, err)
	}
	if err := os.WriteFile(filepath.Join(w.work, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := over(t, a); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	select {
	case err := <-w.left:
		if !errors.Is(err, ErrDrained) {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not leave")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.closed, []string{"a"}) {
		t.Errorf("closed %v", w.closed)
	}
}

// TestRestate checks that the agent repeats its reports on each job's newest attempts. The first
// reports may have been lost.
func TestRestate(t *testing.T) {
	w := obeying(t, "exit $RANK")
	w.order(startOf(0))
	w.quiet()
	w.order(startOf(1))
	w.quiet()
	u := w.jobs["test"].attempts[0]
	var said []string
	for _, ev := range u.reports {
		said = append(said, fmt.Sprint(ev))
	}
	slices.Sort(said)
	if want := []string{
		"rank 0 of unit 0 attempt 1 on n1 exited with code 0", "rank 1 of unit 0 attempt 1 on n1 exited with code 1",
		"started unit 0 attempt 1 on n1", "stopped unit 0 attempt 1 on n1",
	}; !slices.Equal(said, want) {
		t.Errorf("it would say %q, want %q", said, want)
	}
	if u.reports[len(u.reports)-1] != (job.Stopped{Node: "n1", Attempt: 1}) {
		t.Errorf("it says %v last", u.reports[len(u.reports)-1])
	}
	before := strings.Count(w.journal.String(), `"event":"stopped"`)
	w.execute(wire.Order{Do: wire.Restate{}})
	w.journal.times(t, `"event":"stopped"`, before+1)
	w.journal.times(t, `"event":"exited"`, 6)
}

// TestOrdersForAnOutlivedAttempt checks that the agent answers orders for an attempt that was
// followed by another, once no process of either attempt can live. A coordinator with an incomplete
// journal sends such orders.
func TestOrdersForAnOutlivedAttempt(t *testing.T) {
	w := obeying(t, `echo up $GOLAUNCH_ATTEMPT.$RANK; sleep 1000`)
	w.order(startOf(2))
	w.screen.await(t, "up 2.0\n")
	w.screen.await(t, "up 2.1\n")
	w.order(startOf(0))
	w.order(job.Stop{Node: "n1", Attempt: 1, Kill: true})
	w.order(job.Stop{Node: "n1", Attempt: 2, Kill: true})
	w.journal.times(t, `"event":"stopped"`, 3)
	first := strings.Index(w.journal.String(), `"event":"stopped"`)
	if got := w.journal.String()[first:]; !strings.HasPrefix(got, `"event":"stopped","detail":{"node":"n1","unit":0,"attempt":2}`) {
		t.Errorf("the end of an earlier attempt was reported before that of attempt 2:\n%s", got)
	}
	if strings.Contains(w.screen.String(), "up 0") {
		t.Error("attempt 0 began")
	}
}

// times waits until the text contains part n times.
func (l *lines) times(t *testing.T, part string, n int) {
	t.Helper()
	limit := time.After(patience)
	for {
		l.mu.Lock()
		found, more := strings.Count(l.text.String(), part), l.more
		l.mu.Unlock()
		if found >= n {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("%q is there %d times, want %d:\n%s", part, found, n, l)
		}
	}
}
