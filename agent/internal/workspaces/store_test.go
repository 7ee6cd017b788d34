package workspaces

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

// patience bounds every wait in these tests.
const patience = time.Minute

// coordinator sends one workspace, once tickets has an entry for it, or names another node.
type coordinator struct {
	archive *workspace.Archive
	// tickets has an entry for each transfer that may begin; nil permits any number.
	tickets chan struct{}
	// source, unless it is empty, is the address of a node from which others first try to get the
	// workspace. failed gets the error of each such try, or nil.
	source string
	failed chan error
	// served gets the address at which each node serves the workspace.
	served chan string
	// cut breaks the first transfer when half of it is sent.
	cut bool
}

// Fetch does what a session does with the coordinator's stream.
func (c *coordinator) Fetch(ctx context.Context, w report.Workspace, f *session.Fetcher) error {
	if c.archive == nil {
		return errors.New("nobody has it")
	}
	if c.tickets != nil {
		select {
		case <-c.tickets:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !f.Have {
		if err := c.send(ctx, f); err != nil {
			return err
		}
	}
	addr, err := f.End()
	if err != nil {
		return err
	}
	c.served <- addr
	<-ctx.Done()
	return context.Cause(ctx)
}

func (c *coordinator) send(ctx context.Context, f *session.Fetcher) error {
	if c.source != "" {
		err := f.Begin()
		if err == nil {
			err = f.Fetch(ctx, c.source)
		}
		if c.failed <- err; err == nil {
			return nil
		}
	}
	content := make([]byte, c.archive.Bytes)
	if _, err := c.archive.Reader().Read(content); err != nil {
		return err
	}
	if c.cut {
		if err := errors.Join(f.Begin(), f.Write(content[:len(content)/2])); err != nil {
			return err
		}
	}
	return errors.Join(f.Begin(), f.Write(content))
}

// packed returns a coordinator with a workspace of one file.
func packed(t *testing.T) *coordinator {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte(strings.Repeat("content", 100_000)), 0o600))
	a, err := workspace.NewCache(filepath.Join(t.TempDir(), "cache")).Pack(dir, 1<<20)
	must(t, err)
	t.Cleanup(a.Close)
	return &coordinator{archive: a, served: make(chan string, 9), failed: make(chan error, 9)}
}

// node returns a store whose TLS has a token.
func node(t *testing.T, c *coordinator, token mtls.Token) *Store {
	t.Helper()
	s := New(Options{
		Cache: workspace.NewCache(filepath.Join(t.TempDir(), "cache")), Coordinator: c, Addr: netip.MustParseAddr("127.0.0.1"),
		Server: mtls.Server(token, mtls.Identity{Node: "n"}), Client: mtls.Client(token, mtls.Identity{Node: "n"}), Warn: func(err error) { t.Error(err) },
	})
	t.Cleanup(s.Close)
	return s
}

func open(s *Store, c *coordinator, former Former) *Use {
	return s.Open("job", c.archive.Workspace, nil, ports.Range{}, former)
}

// has checks that a job gets its directory.
func has(t *testing.T, u *Use) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, u.Await(ctx))
	if b, err := os.ReadFile(filepath.Join(u.Dir(), "file")); err != nil || !strings.HasPrefix(string(b), "content") {
		t.Errorf("the directory has %.20q (%v)", b, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestJobsShareAnArchive checks that a workspace is sent once for two jobs. Each job has its own
// directory, which ends with the job. A later job finds the archive.
func TestJobsShareAnArchive(t *testing.T) {
	c := packed(t)
	c.tickets = make(chan struct{}, 1)
	c.tickets <- struct{}{}
	s := node(t, c, mtls.NewToken())
	one, two := open(s, c, Former{}), open(s, c, Former{})
	has(t, one)
	has(t, two)
	must(t, os.Remove(filepath.Join(one.Dir(), "file")))
	must(t, one.Close())
	if _, err := os.Stat(one.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a job that is over: %v", err)
	}
	has(t, two)
	must(t, two.Close())
	later := open(s, c, Former{})
	has(t, later)
	must(t, later.Close())
}

// TestBetweenNodes checks that a node gets a workspace from another node over TLS. A node with
// another token, or only the submit token, gets it only from the coordinator.
func TestBetweenNodes(t *testing.T) {
	c := packed(t)
	token := mtls.NewToken()
	first := open(node(t, c, token), c, Former{})
	defer first.Close()
	has(t, first)
	c.source = <-c.served
	for name, test := range map[string]struct {
		client *tls.Config
		want   string
	}{
		"the token":        {mtls.Client(token, mtls.Identity{Node: "n"}), ""},
		"another token":    {mtls.Client(mtls.NewToken(), mtls.Identity{Node: "n"}), "ask " + c.source},
		"the submit token": {mtls.Client(token.Submit(), mtls.Identity{Node: "n"}), "ask " + c.source},
		"no TLS":           {nil, "this node has no TLS for other nodes"},
	} {
		s := node(t, c, token)
		s.Client = test.client
		u := open(s, c, Former{})
		has(t, u)
		if err := <-c.failed; test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		must(t, u.Close())
	}
}

// TestABrokenTransfer checks that a broken transfer begins anew, and that the node tries a failed
// transfer again for the next attempt.
func TestABrokenTransfer(t *testing.T) {
	c := packed(t)
	c.cut = true
	u := open(node(t, c, mtls.NewToken()), c, Former{})
	has(t, u)
	must(t, u.Close())
	c = packed(t)
	archive := c.archive
	c.archive = nil
	u = node(t, c, mtls.NewToken()).Open("job", archive.Workspace, nil, ports.Range{}, Former{})
	if err := u.Await(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody has it") {
		t.Errorf("without a source: %v", err)
	}
	c.archive = archive
	has(t, u)
	must(t, u.Close())
}

// TestTheNextAgent continues in the directory of a dead agent. Another process has kept the lock of
// the directory.
func TestTheNextAgent(t *testing.T) {
	c := packed(t)
	s := node(t, c, mtls.NewToken())
	var lock *os.File
	dead := open(s, c, Former{Keep: func(f *os.File) { lock = f }})
	has(t, dead)
	must(t, os.WriteFile(filepath.Join(dead.Dir(), "mine"), nil, 0o600))
	next := New(s.Options)
	defer next.Close()
	u := open(next, c, Former{Dir: dead.Dir(), Lock: lock})
	has(t, u)
	if _, err := os.Stat(filepath.Join(u.Dir(), "mine")); err != nil || u.Dir() != dead.Dir() {
		t.Errorf("the next agent has %s: %v", u.Dir(), err)
	}
	must(t, u.Close())
	u = open(next, c, Former{Dir: dead.Dir()}) // without the lock: the earlier agent has not finished the directory
	has(t, u)
	must(t, u.Close())
}

// TestTheEndOfAJob ends the wait for a workspace.
func TestTheEndOfAJob(t *testing.T) {
	c := packed(t)
	c.tickets = make(chan struct{})
	u := open(node(t, c, mtls.NewToken()), c, Former{})
	if p := u.Progress(); !strings.HasPrefix(p, "0 bytes of ") {
		t.Errorf("the progress is %q", p)
	}
	must(t, u.Close())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := u.Await(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
