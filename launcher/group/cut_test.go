package group_test

import (
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/group"
)

// cable stands for the network between a program and a coordinator.
type cable struct {
	net.Listener
	mu    sync.Mutex
	ends  []net.Conn
	isCut bool
	all   sync.WaitGroup
}

// lay returns a cable that leads to addr.
func lay(t *testing.T, addr string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l}
	c.all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			if c.ends = append(c.ends, near, far); c.isCut {
				c.hangUp()
			}
			c.mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				c.all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					near.Close()
					far.Close()
				})
			}
		}
	})
	t.Cleanup(c.cut)
	return c
}

func (c *cable) hangUp() {
	for _, end := range c.ends {
		end.Close()
	}
}

// cut ends all connections and allows no new ones.
func (c *cable) cut() {
	c.Close()
	c.mu.Lock()
	c.isCut = true
	c.hangUp()
	c.mu.Unlock()
	c.all.Wait()
}

// TestAGroupWithoutItsCoordinator: Close returns after EndWithin, with an error, since it cannot
// stop the workers. The coordinator ends the workers because the group's watch is gone.
func TestAGroupWithoutItsCoordinator(t *testing.T) {
	c := clustertest.Start(t, 1)
	way := lay(t, c.Coordinator)
	j := launcher.Job{Resources: launcher.Resources{PerNode: []int{1}, GPU: true}}
	client := clustertest.Cluster{Coordinator: way.Addr().String(), TokenFile: c.TokenFile}.Connect(t)
	r, err := group.Reserve(t.Context(), client, j, 0)
	if err != nil {
		t.Fatal(err)
	}
	j.ID, j.Command, j.Env = "cut", []string{os.Args[0]}, []string{workerVar + "=1", "GORACE=atexit_sleep_ms=0"}
	g, err := r.Group(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	hang(t, g, 0)
	way.cut()
	g.EndWithin(100 * time.Millisecond)
	if result, err := g.Close(); err == nil || !strings.Contains(err.Error(), "stop workers that did not end within 100ms") {
		t.Errorf("%+v, %v, want that they could not be stopped", result, err)
	}
	if result, err := c.Connect(t).Wait(limited(t), j.ID); err != nil || result.Code == 0 {
		t.Errorf("%+v, %v, want that the job was ended", result, err)
	}
}
