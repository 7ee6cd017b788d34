package rendezvous

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// TestOnlyAProofIsDeath ends connections of a living agent in every way in which a proxy or
// firewall may end them. Each time the ranks continue, and the agent reconnects. In the end the
// agent dies, and its proof has an effect at once.
func TestOnlyAProofIsDeath(t *testing.T) {
	for name, end := range map[string]func(*cable){
		"nothing":             func(c *cable) { c.newest().end(nil) },
		"a wrong proof":       func(c *cable) { c.newest().end([]byte(rand.Text() + rand.Text())[:wire.ProofSize]) },
		"most of the proof":   func(c *cable) { c.newest().end(c.proof[:wire.ProofSize-1]) },
		"the commitment":      func(c *cable) { sum := sha256.Sum256(c.proof[:]); c.newest().end(sum[:]) },
		"a proof before more": func(c *cable) { c.newest().end(append(slices.Clone(c.proof[:]), 0)) },
		"nothing, for one side": func(c *cable) {
			c.newest().dead.Store(true)
			c.newest().end(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				a, b := w.join(1, forever), w.join(2, forever)
				for range 10 {
					time.Sleep(lease + time.Millisecond) // at another instant than heartbeats
					end(a.cable)
				}
				time.Sleep(lease)
				synctest.Wait()
				if n := w.births("j1", 0) + w.births("j1", 1); n != 2 || a.Err() != nil || len(a.cable.conns) != 11 {
					t.Errorf("%d starts, %v after %d connections\n%s", n, a.Err(), len(a.cable.conns), strings.Join(w.decided(), "\n"))
				}
				at := time.Now()
				a.die()
				synctest.Wait()
				if lost := w.when(isLost); lost != at {
					t.Errorf("lost after %v", lost.Sub(at))
				}
				w.c.Cancel(130, "enough")
				<-w.result
				b.leave(t)
			})
		})
	}
}

// TestProofOnAnyConnection checks that a proof has an effect on any connection of an agent, but not
// on a connection of an earlier agent with the same name.
func TestProofOnAnyConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		dial := func(h *pb.Hello) (net.Conn, string) {
			t.Helper()
			conn, err := w.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cc := plainly(t, func(context.Context) (net.Conn, error) { return conn, nil })
			t.Cleanup(func() { cc.Close() })
			first, err := introduce(t, cc, h)
			if err != nil {
				t.Fatal(err)
			}
			return conn, first.GetWelcome().GetEpoch()
		}
		there := func(n int) {
			t.Helper()
			synctest.Wait()
			if nodes := w.c.Summary().Nodes; len(nodes) != n {
				t.Errorf("%d nodes, want %d\n%s", len(nodes), n, strings.Join(w.decided(), "\n"))
			}
		}
		fresh := func(instance string) (h *pb.Hello, proof []byte) {
			proof = make([]byte, wire.ProofSize)
			rand.Read(proof)
			sum := sha256.Sum256(proof)
			h = helloOf(node(1))
			h.Instance, h.Commitment = instance, sum[:]
			return h, proof
		}
		h, proof := fresh("x")
		first, epoch := dial(h)
		h.Epoch = epoch
		second, _ := dial(h)
		third, _ := dial(h)
		third.Close() // before the connection was used
		there(1)
		second.Write(proof)
		there(0)
		other, another := fresh("y")
		again, _ := dial(other)
		first.Write(proof)
		there(1)
		again.Write(another)
		there(0)
		w.c.Cancel(130, "enough")
		<-w.result
	})
}

// TestAnAgentWithoutProof checks that the coordinator notices the death of an agent without a
// guardian only when the lease is over.
func TestAnAgentWithoutProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := &cable{dial: w.connect}
		s, err := session.Join(t.Context(), session.Options{Target: "head:1", Node: node(1), Dial: c.connect, Warn: w.warn})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		at := time.Now()
		c.unreachable.Store(true)
		c.newest().end(make([]byte, wire.ProofSize))
		ended(s)
		s.Close("")
		time.Sleep(lease + killTime)
		if lost := w.when(isLost); lost.Sub(at) != lease+killTime {
			t.Errorf("lost after %v", lost.Sub(at))
		}
		w.c.Cancel(130, "enough")
		<-w.result
	})
}

// TestProofBelowTLS checks that the coordinator reads the proof, whatever the agent was sending
// when it died.
func TestProofBelowTLS(t *testing.T) {
	for name, before := range map[string]string{
		"nothing":                      "",
		"the beginning of a header":    "\x17\x03",
		"a header":                     "\x17\x03\x03\x40\x00",
		"all but one byte of a record": "\x17\x03\x03\x00\x20" + strings.Repeat("x", 31),
		"a record that the proof ends": "\x17\x03\x03\x00\x40" + strings.Repeat("x", 32),
	} {
		t.Run(name, func(t *testing.T) {
			notes := make(chan string, 8)
			target, stop := hostOverTLS(t, Config{Lease: time.Hour, Note: func(text string) { notes <- text }}, "127.0.0.1:0")
			defer stop()
			var conn *mortal
			o := session.Options{Target: target, TLS: client1(token, "n1"), Node: node(1), Warn: func(error) {}}
			o.Dial = func(context.Context) (_ net.Conn, err error) {
				if conn != nil {
					return nil, errors.New("it is dead")
				}
				conn = &mortal{}
				conn.Conn, err = net.Dial("tcp", target)
				return conn, err
			}
			rand.Read(o.Proof[:])
			s, err := session.Join(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			want(t, <-notes, "node n1 is here")
			if err := conn.die(before, string(o.Proof[:])); err != nil {
				t.Fatal(err)
			}
			select {
			case text := <-notes:
				want(t, text, "node n1 was lost: its agent has died")
			case <-time.After(time.Minute):
				t.Error("the proof does not arrive")
			}
			s.Close("")
		})
	}
}

// mortal is a connection of an agent that dies. From then on the connection sends nothing by
// itself.
type mortal struct {
	net.Conn
	mu   sync.Mutex
	dead bool
}

func (m *mortal) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// die sends the last bytes of the connection, such as the proof.
func (m *mortal) die(words ...string) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, w := range words {
		_, more := io.WriteString(m.Conn, w)
		err = errors.Join(err, more)
	}
	return err
}

// Summary describes the only job; it is the zero Summary once Run has returned.
func (c *Coordinator) Summary() job.Summary {
	s, _ := ask(c, func() (job.Summary, error) {
		if c.onlyJob == nil {
			return job.Summary{}, nil
		}
		status, _ := c.state.Cluster.Job(c.onlyJob.Job.ID)
		return status.Summary, nil
	})
	return s
}
