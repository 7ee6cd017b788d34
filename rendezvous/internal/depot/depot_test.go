package depot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

// kept returns a new depot with a workspace.
func kept(t testing.TB) (*Depot, string) {
	t.Helper()
	content := []byte("content")
	sum := sha256.Sum256(content)
	w := report.Workspace{ID: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
	dir := filepath.Join(t.TempDir(), "cache")
	in, err := workspace.NewCache(dir).Receive(w)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	if _, err := bytes.NewReader(content).WriteTo(in); err != nil {
		t.Fatal(err)
	}
	a, err := in.Commit()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	return New(dir), w.ID
}

// spread sends a workspace to many nodes at once. Each transfer takes a second. fails decides for
// each transfer from another node whether it fails. spread returns how long all nodes together
// take, and how many times this process has sent the workspace.
func spread(t *testing.T, nodes int, fails func() bool) (took time.Duration, sent int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, id := kept(t)
		began := time.Now()
		done := make(chan error, nodes)
		own := make(chan struct{}, 100*nodes)
		over := make(chan struct{})
		for i := range nodes {
			go func() {
				use := d.Open(id)
				defer use.Close()
				for failed := 0; ; {
					s, err := use.Find(t.Context(), failed)
					if err != nil {
						done <- err
						return
					}
					if s.Addr == "" {
						own <- struct{}{}
					}
					time.Sleep(time.Second)
					bad := s.Addr != "" && fails()
					use.Done(s, bad)
					if !bad {
						break
					}
					failed++
				}
				defer use.Add(fmt.Sprint("node", i))()
				done <- nil
				<-over
			}()
		}
		for range nodes {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		took, sent = time.Since(began), len(own)
		close(over)
		synctest.Wait()
		if len(d.items) > 0 {
			t.Errorf("%d workspaces are still in use", len(d.items))
		}
	})
	return took, sent
}

// TestSpread checks that the coordinator sends a workspace a few times, even if many nodes want it,
// and that the time grows with the logarithm of their number.
func TestSpread(t *testing.T) {
	for nodes, most := range map[int]struct {
		took time.Duration
		sent int
	}{1: {time.Second, 1}, 2: {time.Second, 2}, 10: {3 * time.Second, 4}, 1000: {8 * time.Second, 4}, 10_000: {10 * time.Second, 4}} {
		took, sent := spread(t, nodes, func() bool { return false })
		t.Logf("%d nodes: %v, and the coordinator sent it %d times", nodes, took, sent)
		if took > most.took || sent > most.sent {
			t.Errorf("%d nodes: at most %v and %d times", nodes, most.took, most.sent)
		}
	}
}

// TestSpreadWithFailures checks that all nodes get the workspace even if some, or all, cannot reach
// each other.
func TestSpreadWithFailures(t *testing.T) {
	took, sent := spread(t, 200, func() bool { return rand.IntN(10) == 0 })
	t.Logf("a tenth of the transfers fail: %v, sent %d times", took, sent)
	took, sent = spread(t, 50, func() bool { return true })
	t.Logf("no node reaches another: %v, sent %d times", took, sent)
	if sent != 50 {
		t.Errorf("the coordinator sent it %d times, want 50", sent)
	}
}

// TestAbsent checks that nodes learn that no node has a workspace. If a node with the workspace
// joins later, waiting nodes get it from that node.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New("")
		use := d.Open("0123")
		defer use.Close()
		if _, err := use.Find(t.Context(), 0); err == nil {
			t.Error("a source of what nobody has")
		}
		go func() {
			time.Sleep(absentLimit / 2)
			use.Add("node")
		}()
		if s, err := use.Find(t.Context(), 0); err != nil || s.Addr != "node" {
			t.Errorf("the source is %+v (%v)", s, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		found := make(chan error)
		if _, err := use.Find(t.Context(), 0); err != nil { // the second of its places
			t.Error(err)
		}
		go func() {
			_, err := use.Find(ctx, 0)
			found <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-found; !errors.Is(err, context.Canceled) || len(use.waiting) > 0 {
			t.Errorf("after the end: %v, and %d wait", err, len(use.waiting))
		}
	})
}
