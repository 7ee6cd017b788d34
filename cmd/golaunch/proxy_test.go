package main

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// proxy forwards connections to a coordinator on the same node.
type proxy struct {
	// came gets a value for each connection.
	came chan struct{}

	mu    sync.Mutex
	conns []*net.TCPConn
}

// startProxy takes connections on a node, and makes a connection to a coordinator for each of them.
func startProxy(t *testing.T, n nettest.Node, at, to string) *proxy {
	t.Helper()
	p := &proxy{came: make(chan struct{}, 1000)}
	listens := make(chan net.Listener)
	go func() {
		defer close(listens)
		n.Do(t, func() {
			l, err := net.Listen("tcp", at)
			if err != nil {
				t.Error(err)
				return
			}
			listens <- l
			for near, err := l.Accept(); err == nil; near, err = l.Accept() {
				if far, err := net.Dial("tcp", to); err != nil {
					near.Close()
				} else {
					p.join(near.(*net.TCPConn), far.(*net.TCPConn))
				}
			}
		})
	}()
	l, ok := <-listens
	if !ok {
		t.FailNow()
	}
	t.Cleanup(func() {
		l.Close()
		p.end((*net.TCPConn).Close)
	})
	return p
}

// join forwards data and orderly ends in both directions.
func (p *proxy) join(near, far *net.TCPConn) {
	p.mu.Lock()
	p.conns = append(p.conns, near, far)
	p.mu.Unlock()
	p.came <- struct{}{}
	pass := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err == nil {
			to.CloseWrite()
		}
	}
	go pass(near, far)
	go pass(far, near)
}

// end ends all current connections.
func (p *proxy) end(how func(*net.TCPConn) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		how(c)
	}
	p.conns = nil
}

// TestAProxyEndsConnections ends connections again and again, with a reset or in order. Such an end
// proves no death: ranks and agents go on, and after a reset the client goes on too. The
// coordinator still learns when an agent has died.
func TestAProxyEndsConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end func(*net.TCPConn) error
		all bool
	}{
		"reset": {func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }, true},
		"close": {(*net.TCPConn).Close, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			coordinator := h.coordinate()
			h.at = "10.77.0.2:29401"
			p := startProxy(t, h.nodes[0], h.at, clusterAt)
			n10, _ := h.join(1, "n10", 1), h.join(2, "n9", 1)
			var through []string
			users := 2
			if c.all {
				through, users = []string{"--coordinator", h.at}, 3
			}
			job := h.counters(through...)
			for range users {
				<-p.came
			}
			for range 5 {
				p.end(c.end)
				for range users {
					<-p.came
				}
				job.onward()
			}
			unharmed(t, h, job, coordinator)
			gone(t, mark(t))
			n10.kill()
			coordinator.line("node n10 was lost: its agent has died")
		})
	}
}
