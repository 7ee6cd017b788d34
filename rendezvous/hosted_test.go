package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// hosted is a world whose coordinator hosts a cluster. The coordinator may crash, and may be
// restarted with the same log.
type hosted struct {
	*world
	dir   string
	cfg   Config
	stop  context.CancelFunc
	ended chan error
	// trio, if not nil, keeps the log instead of a file.
	trio *trio
}

// host runs f in a cluster with a log file, in virtual time.
func host(t *testing.T, f func(t *testing.T, h *hosted)) {
	dir := memory(t)
	synctest.Test(t, func(t *testing.T) {
		h := &hosted{world: &world{t: t, lives: map[[2]string]string{}, begun: map[[2]string]int{}}, dir: dir}
		h.start()
		t.Cleanup(func() {
			h.crash()
			h.serving.Wait()
		})
		f(t, h)
	})
}

// memory returns a directory in memory, where a sync takes no time.
func memory(t *testing.T) string {
	t.Setenv("TMPDIR", "/dev/shm")
	return t.TempDir()
}

func (h *hosted) start() {
	h.t.Helper()
	cfg, done := h.cfg, func() error { return nil }
	if h.trio != nil {
		cfg.Term = &Term{h.trio.elect()}
	} else {
		file, err := log.Open(h.dir)
		if err != nil {
			h.t.Fatal(err)
		}
		cfg.File, done = file, file.Close
	}
	h.serve(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.ended = cancel, make(chan error, 1)
	c, ended := h.c, h.ended
	go func() {
		defer close(ended)
		_, err := c.Run(ctx)
		ended <- errors.Join(err, done())
	}()
	synctest.Wait()
}

// crash ends the coordinator without a last message. Its connections just end.
func (h *hosted) crash() {
	h.t.Helper()
	defer synctest.Wait()
	if h.trio != nil {
		h.trio.lose(h)
		return
	}
	h.stop()
	if err := <-h.ended; err != nil {
		h.t.Error(err)
	}
}

// path is the path of the log.
func (h *hosted) path() string { return filepath.Join(h.dir, "log") }

// forge changes the log file while no coordinator has it open.
func (h *hosted) forge(f func(text []byte) []byte) {
	h.t.Helper()
	text, err := os.ReadFile(h.path())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(), f(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// rewrite keeps the log's entries up to the first one for which keep returns false.
func (h *hosted) rewrite(keep func(replica.Entry) bool) {
	h.t.Helper()
	file, err := log.Open(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	past, err := file.Past()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(file.Close(), os.Remove(h.path())); err != nil {
		h.t.Fatal(err)
	}
	var kept [][]byte
	for _, b := range past.Entries {
		e, err := entry.Read(b)
		if err != nil {
			h.t.Fatal(err)
		}
		if !keep(e) {
			break
		}
		kept = append(kept, b)
	}
	if file, err = log.Open(h.dir); err != nil {
		h.t.Fatal(err)
	}
	written := make(chan error)
	file.Keep(log.Round{Entries: kept}, func(err error) { written <- err })
	if err := errors.Join(<-written, file.Close()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hosted) warned() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.warnings, "\n")
}

// gpus returns a node with GPUs.
func gpus(i, n int) placement.Node {
	node := node(i)
	for g := range n {
		node.GPUs = append(node.GPUs, placement.GPU{Index: g, UUID: fmt.Sprintf("GPU-%d-%d", i, g)})
	}
	return node
}

// task returns a job with GPUs.
func task(id string, nodes, perNode int) replica.Submission {
	return replica.Submission{
		Spec: cluster.Spec{Job: job.Spec{
			ID: id, MaxRestarts: 3, Grace: 30 * time.Second,
			Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{perNode}, GPU: true},
		}},
		Task: []byte("task of " + id), Title: "run " + id, BackoffMin: time.Second, BackoffMax: time.Minute,
	}
}

func detached(s replica.Submission) replica.Submission {
	s.Detached = true
	return s
}

// user is a client with its network.
type user struct {
	*session.Client
	h     *hosted
	cable *cable
}

func (h *hosted) user() *user {
	h.t.Helper()
	c := &cable{dial: h.connect}
	client, err := session.Connect(h.t.Context(), session.ClientOptions{Target: "head:1", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return c.connect(ctx) }})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { client.Close() })
	return &user{client, h, c}
}

// raw returns a client that does not use golaunch's own client.
func (h *hosted) raw(c *cable) pb.ClusterClient {
	cc := plainly(h.t, c.connect)
	h.t.Cleanup(func() { cc.Close() })
	return pb.NewClusterClient(cc)
}

// submits sends the messages of a submission, and returns the coordinator's refusal, or nil.
func (h *hosted) submits(all []*pb.Submission) error {
	stream, err := h.raw(&cable{dial: h.connect}).Submit(h.t.Context())
	if err == nil {
		err = wire.Put(stream, all)
	}
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// sight collects what a client gets about a job.
type sight struct {
	*session.Watch
	done chan struct{}

	mu      sync.Mutex
	told    []string
	news    []string
	granted []placement.Plan
	result  *report.Result
	err     error
}

func (u *user) submit(s replica.Submission) *sight {
	u.h.t.Helper()
	w, err := u.Submit(u.h.t.Context(), s)
	if err != nil {
		u.h.t.Fatal(err)
	}
	return see(u.h.t, w)
}

func (u *user) watch(id string) *sight {
	u.h.t.Helper()
	w, err := u.Watch(u.h.t.Context(), id)
	if err != nil {
		u.h.t.Fatal(err)
	}
	return see(u.h.t, w)
}

func see(t *testing.T, w *session.Watch) *sight {
	s := &sight{Watch: w, done: make(chan struct{})}
	t.Cleanup(w.Close)
	go func() {
		defer close(s.done)
		for s.take(w.Next(t.Context())) {
		}
	}()
	synctest.Wait()
	return s
}

func (s *sight) take(u wire.Update, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		return false
	case err != nil:
		s.err = err
		return false
	case u.Decision != nil && u.Decision.News:
		s.news = append(s.news, u.Decision.Reason)
		s.told = append(s.told, u.Decision.Reason)
	case u.Decision != nil:
		s.told = append(s.told, u.Decision.Reason)
	case u.Granted != nil:
		s.granted = append(s.granted, *u.Granted)
	case u.Result != nil:
		s.result = u.Result
	}
	return true
}

// all returns everything so far.
func (s *sight) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told, "\n")
}

// over waits for the result.
func (s *sight) over(t *testing.T) report.Result {
	t.Helper()
	<-s.done
	if s.err != nil || s.result == nil {
		t.Fatalf("job %s: %v\n%s", s.Job, s.err, s.all())
	}
	return *s.result
}

// want checks that texts are in a text, in that order.
func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("no %q in, or not in this order:\n%s", part, text)
			return
		}
		rest = after
	}
}

func (u *user) status() report.Status {
	u.h.t.Helper()
	s, err := u.Status(u.h.t.Context())
	if err != nil {
		u.h.t.Fatal(err)
	}
	return s
}

func (u *user) job(id string) report.JobStatus {
	u.h.t.Helper()
	s, err := u.Job(u.h.t.Context(), id)
	if err != nil {
		u.h.t.Fatal(err)
	}
	return s
}

// at returns the status of one node of the cluster.
func (u *user) at(name string) report.NodeStatus {
	all := u.status().Nodes
	i := slices.IndexFunc(all, func(n report.NodeStatus) bool { return n.Name == name })
	if i < 0 {
		return report.NodeStatus{}
	}
	return all[i]
}
