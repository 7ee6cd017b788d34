package rendezvous

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// TestAgentsWaitForTheNews kills the leading coordinator. Each agent waits at another process until
// that process knows the next leader, and then connects to the leader. So no agent makes more than
// two connections. If the processes did not hold the agents, the agents would ask one process after
// another, repeatedly.
func TestAgentsWaitForTheNews(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		h.joinAll(40)
		h.client().submit(detached(task("a", 40, 2)))
		time.Sleep(lease)
		for range 3 {
			leads, _ := h.lead()
			h.net.Lock()
			before := len(h.wires)
			h.net.Unlock()
			h.kill(leads)
			killed := time.Now()
			h.lead()
			most := 2
			if time.Since(killed) > lease/election.MaxHoldsPerLease { // the vote was split, and meanwhile the agents have asked the other process
				most = 4
			}
			time.Sleep(lease)
			made, at := map[string]int{}, map[string]bool{}
			h.net.Lock()
			for _, w := range h.wires[before:] {
				if strings.HasPrefix(w.from, "n") {
					made[w.from]++
					at[w.to] = true
				}
			}
			h.net.Unlock()
			for _, a := range h.agents {
				if n := made[a.Node.Name]; n < 1 || n > most {
					t.Errorf("node %s has made %d connections", a.Node.Name, n)
				}
			}
			if len(at) != 2 {
				t.Errorf("all have turned to %v", at)
			}
			h.start(leads)
			time.Sleep(lease)
		}
		for _, a := range h.agents {
			if runs := a.runs(); runs != "a0" {
				t.Errorf("%s run on %s", runs, a.Node.Name)
			}
		}
	})
}

// TestWhichCallersAreHeld checks which callers a process without the coordinator holds, and for how
// long.
func TestWhichCallersAreHeld(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		leads, _ := h.lead()
		var follower *headPeer
		for addr, p := range h.living {
			if addr != leads {
				follower = p
			}
		}
		asks := func(hello *pb.Hello) (*wire.ElsewhereError, time.Duration) {
			start := time.Now()
			_, err := follower.Candidate.await(t.Context(), follower.election.Agent(hello))
			e := wire.Elsewhere(status.Convert(err))
			if e == nil {
				t.Fatalf("an agent that asks a process without the coordinator gets %v", err)
			}
			return e, time.Since(start)
		}
		const beat = lease / election.PeerElectionsPerLease / 10 // a leader sends heartbeats that often
		for _, c := range []struct {
			name  string
			hello *pb.Hello
			held  time.Duration
		}{
			{"asks anew", &pb.Hello{}, 0},
			{"has lost another one", &pb.Hello{Lost: "h9:1"}, 0},
			{"has lost the one that leads", &pb.Hello{Lost: leads, Patience: durationpb.New(time.Hour)}, beat},
		} {
			if e, took := asks(c.hello); e.Leader != leads || e.Wait > 2*election.Pace || took > c.held {
				t.Errorf("a caller that %s gets %+v after %v", c.name, e, took)
			}
		}
		h.part(hostOf(follower.election.Self().Addr))
		time.Sleep(lease / election.PeerElectionsPerLease) // until it knows no leader
		for _, c := range []struct {
			name  string
			hello *pb.Hello
			held  time.Duration
		}{
			{"is older", &pb.Hello{}, lease / election.HoldsPerLease},
			{"waits long", &pb.Hello{Lost: leads, Patience: durationpb.New(time.Hour)}, lease / election.MaxHoldsPerLease},
			{"waits not so long", &pb.Hello{Lost: leads, Patience: durationpb.New(lease / 10)}, wire.HeldOf(lease / 10)},
		} {
			if e, took := asks(c.hello); e.Leader != "" || took != c.held {
				t.Errorf("without a leader, a caller that %s gets %+v after %v", c.name, e, took)
			}
		}
		h.part()
		time.Sleep(lease)
		h.part(hostOf(leads))
		time.Sleep(lease / election.PeerElectionsPerLease * 9 / 10)
		start := time.Now()
		c, err := follower.Candidate.await(t.Context(), follower.election.Agent(&pb.Hello{Lost: leads, Patience: durationpb.New(lease)}))
		took, e := time.Since(start), wire.Elsewhere(status.Convert(err))
		if took < lease/election.MaxHoldsPerLease && c == nil && (e == nil || e.Leader == leads || e.Leader == "") || took > lease/election.MaxHoldsPerLease {
			t.Errorf("after an election: %+v, after %v", err, took)
		}
		h.part()
	})
}

// TestACrowd checks that only a few agents of a crowd make handshakes while there is no leader, or
// with a process that does not lead.
func TestACrowd(t *testing.T) {
	several(t, func(t *testing.T, h *headed) {
		h.startAll()
		leads, _ := h.lead()
		var crowd, few atomic.Int64
		crowd.Store(12_500)
		few.Store(server.MaxHandshakes)
		for addr, p := range h.living {
			if err := p.election.HoldHandshake(t.Context(), &few); err != nil {
				t.Errorf("a few at %s: %v", addr, err)
			}
			start := time.Now()
			if err := p.election.HoldHandshake(t.Context(), &crowd); errors.Is(err, election.ErrElsewhere) != (addr != leads) || time.Since(start) > 2*time.Second {
				t.Errorf("a crowd at %s: %v after %v", addr, err, time.Since(start))
			}
		}
		h.kill(leads)
		time.Sleep(lease / election.PeerElectionsPerLease / 2) // the leader is missed, and there is no new one yet
		heard, start := map[string]chan error{}, time.Now()
		for addr, p := range h.living {
			news := make(chan error, 1)
			heard[addr] = news
			go func() { news <- p.election.HoldHandshake(t.Context(), &crowd) }()
		}
		synctest.Wait()
		for addr, c := range heard {
			if len(c) > 0 {
				t.Errorf("%s does not wait for the news: %v", addr, <-c)
			}
		}
		next, _ := h.lead()
		for addr, c := range heard {
			err := <-c
			late := time.Since(start) >= lease/election.MaxHoldsPerLease // votes may be split
			if !late && errors.Is(err, election.ErrElsewhere) != (addr != next) || late && err != nil && !errors.Is(err, election.ErrElsewhere) {
				t.Errorf("a crowd at %s, when %s leads: %v", addr, next, err)
			}
		}
		h.kill(next) // one process is left, and there can be no leader
		for addr, p := range h.living {
			time.Sleep(lease)
			start := time.Now()
			if err := p.election.HoldHandshake(t.Context(), &crowd); !errors.Is(err, election.ErrElsewhere) || time.Since(start) != lease/election.MaxHoldsPerLease {
				t.Errorf("a crowd at %s, without a leader: %v after %v", addr, err, time.Since(start))
			}
		}
	})
}
