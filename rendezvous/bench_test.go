package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/internal/quorum"
)

// BenchmarkJoin is from dialling to Welcome, within one process and over loopback.
func BenchmarkJoin(b *testing.B) {
	secure := mtls.Server(token, mtls.Identity{Job: "j1"})
	run := func(name string, l net.Listener, o Options) {
		b.Run(name, func(b *testing.B) {
			s := one(2)
			c := NewCoordinator(Config{Job: &s, Warn: func(err error) { b.Error(err) }})
			server := secure
			if o.TLS == nil {
				server = nil
			}
			go c.Serve(l, server)
			go c.Run(context.Background())
			for b.Loop() {
				s, err := Join(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close("")
				b.StartTimer()
			}
			c.Cancel(130, "")
			<-c.done
		})
	}
	memory := func(o Options) (net.Listener, Options) {
		l, dial := Pipe()
		o.Target, o.Dial, o.Node = "memory", dial, node(1)
		return l, o
	}
	l, o := memory(Options{})
	run("memory", l, o)
	l, o = memory(Options{TLS: client1(token, "n1")})
	run("memory-tls", l, o)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	run("loopback-tls", tcp, Options{Target: tcp.Addr().String(), TLS: client1(token, "n1"), Node: node(1)})
}

// BenchmarkThousandAgents has 1,000 agents join over loopback and mutual TLS at once, clients on the same cores.
func BenchmarkThousandAgents(b *testing.B) {
	const agents = 1000
	for b.Loop() {
		c, target, _ := head(b, agents+1)
		var wg sync.WaitGroup
		sessions := make([]*Session, agents)
		for i := range agents {
			wg.Go(func() {
				n := node(i + 1)
				var err error
				if sessions[i], err = Join(b.Context(), Options{Target: target, TLS: client1(token, n.Name), Node: n}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		if sum := c.Summary(); len(sum.Nodes) != agents {
			b.Fatal(fmt.Sprint(len(sum.Nodes), " nodes"))
		}
		b.StopTimer()
		for _, s := range sessions {
			wg.Go(func() { s.Close("") })
		}
		wg.Wait()
		b.StartTimer()
	}
	b.ReportMetric(float64(agents)*float64(b.N)/b.Elapsed().Seconds(), "joins/s")
}

// BenchmarkCommit is what a step of a job waits for its voters, over loopback and mutual TLS: for them to have an entry, and to say that
// nobody else leads.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		term := parliament(b, n)
		wait := func(begin func(done func(error))) {
			done := make(chan error, 1)
			begin(func(err error) { done <- err })
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		entry := [][]byte{make([]byte, 300)}
		b.Run(fmt.Sprintf("voters=%d/entry", n), func(b *testing.B) {
			for b.Loop() {
				wait(func(done func(error)) { term.Propose(entry, done) })
			}
		})
		b.Run(fmt.Sprintf("voters=%d/heartbeat", n), func(b *testing.B) {
			for b.Loop() {
				wait(term.Confirm)
			}
		})
	}
}

// parliament is so many voters, the first of which leads.
func parliament(b *testing.B, n int) *quorum.Term {
	seat := func(i int, addr string) *Seat {
		id := mtls.Identity{Node: fmt.Sprint("n", i), Job: "j1"}
		s := NewSeat(SeatConfig{
			Node: id.Node, Addr: addr, Lease: lease, Server: mtls.Server(token, id), Client: mtls.Client(token, id), Warn: func(err error) { b.Error(err) },
		})
		b.Cleanup(s.Close)
		return s
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	first := seat(0, l.Addr().String())
	go first.Serve(l)
	term, err := first.found()
	if err != nil {
		b.Fatal(err)
	}
	voters := []quorum.Voter{first.voter}
	for i := range n - 1 {
		voters = append(voters, toVoter(seat(i+1, "").open(netip.MustParseAddr("127.0.0.1"))))
	}
	term.Reconfigure(voters)
	for len(first.others()) < n-1 {
		done := make(chan error, 1)
		term.Confirm(func(err error) { done <- err })
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	return term
}
