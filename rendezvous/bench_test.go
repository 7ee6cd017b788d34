package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// BenchmarkJoin measures the time from dialling to Welcome, within one process and over loopback.
func BenchmarkJoin(b *testing.B) {
	secure := mtls.Server(token, mtls.Identity{Job: "j1"})
	run := func(name string, l net.Listener, o session.Options) {
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
				s, err := session.Join(b.Context(), o)
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
	memory := func(o session.Options) (net.Listener, session.Options) {
		l, dial := wiretest.Pipe()
		o.Target, o.Dial, o.Node = "memory", dial, node(1)
		return l, o
	}
	l, o := memory(session.Options{})
	run("memory", l, o)
	l, o = memory(session.Options{TLS: client1(token, "n1")})
	run("memory-tls", l, o)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	run("loopback-tls", tcp, session.Options{Target: tcp.Addr().String(), TLS: client1(token, "n1"), Node: node(1)})
}

// BenchmarkThousandAgents lets 1,000 agents join at once over loopback and mutual TLS. The agents
// use the same cores as the coordinator.
func BenchmarkThousandAgents(b *testing.B) {
	const agents = 1000
	for b.Loop() {
		c, target, _ := head(b, agents+1)
		var wg sync.WaitGroup
		sessions := make([]*session.Session, agents)
		for i := range agents {
			wg.Go(func() {
				n := node(i + 1)
				var err error
				if sessions[i], err = session.Join(b.Context(), session.Options{Target: target, TLS: client1(token, n.Name), Node: n}); err != nil {
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

// BenchmarkCommit measures how long a step of a job waits for the voters, over loopback and mutual
// TLS. The voters keep an entry, or confirm that there is no other leader.
func BenchmarkCommit(b *testing.B) {
	for _, voters := range []int{1, 3, 5} {
		term := parliament(b, voters)
		for name, entries := range map[string][][]byte{"line": {make([]byte, 300)}, "heartbeat": nil} {
			b.Run(fmt.Sprintf("voters=%d/%s", voters, name), func(b *testing.B) {
				for b.Loop() {
					if err := commit(term, entries); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCatchUp measures the time until a new voter has received a log and votes, over loopback
// and mutual TLS.
func BenchmarkCatchUp(b *testing.B) {
	for name, log := range logs {
		b.Run(name, func(b *testing.B) {
			first, second := candidate(b, 0), candidate(b, 1)
			term := found(b, first)
			commitAll(b, term, log())
			b.ReportAllocs()
			for b.Loop() {
				vote(b, term, first, second)
				b.StopTimer()
				vote(b, term, first)
				second.Close()
				second = candidate(b, 1)
				b.StartTimer()
			}
		})
	}
}

// parliament returns a term with n voters. The first voter leads.
func parliament(b *testing.B, n int) *quorum.Term {
	var candidates []*Candidate
	for i := range n {
		candidates = append(candidates, candidate(b, i))
	}
	term := found(b, candidates[0])
	vote(b, term, candidates...)
	return term
}

// candidate returns a candidate that listens on loopback.
func candidate(b *testing.B, i int) *Candidate {
	id := mtls.Identity{Node: fmt.Sprint("n", i), Job: "j1"}
	s := NewCandidate(CandidateConfig{
		Node: id.Node, Lease: lease, Server: mtls.Server(token, id), Client: mtls.Client(token, id), Warn: func(err error) { b.Log(err) },
	})
	b.Cleanup(s.Close)
	if s.Open(netip.MustParseAddr("127.0.0.1")).ID == 0 {
		b.Fatal("no candidate")
	}
	return s
}

// found makes a candidate without a log begin one.
func found(t testing.TB, s *Candidate) *quorum.Term {
	t.Helper()
	term, err := s.found()
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// vote makes these candidates the only voters, with the first candidate as leader, and waits until
// they are.
func vote(b *testing.B, term *quorum.Term, candidates ...*Candidate) {
	term.Reconfigure(wire.Convert(candidates, func(s *Candidate) quorum.Voter { return s.election.Self() }))
	for len(candidates[0].election.Others()) != len(candidates)-1 {
		if err := commit(term, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// commit returns when a majority of the voters has the entries. Without entries it confirms that no
// other voter led when it was called.
func commit(t *quorum.Term, entries [][]byte) error {
	done := make(chan error, 1)
	if len(entries) == 0 {
		t.Confirm(func(err error) { done <- err })
	} else {
		t.Propose(entries, func(err error) { done <- err })
	}
	return <-done
}
