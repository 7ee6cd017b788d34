package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
)

func TestTheCoordinatorsNodeDies(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(4, secondIsLast)
		p.settled(3)
		p.crash(q[0])
		p.ended(2, q[1:]...)
		for rank := range 3 {
			if n := p.births("j1", rank); n != 2 {
				t.Errorf("rank %d was started %d times, want 2", rank, n)
			}
		}
		want(t, strings.Join(p.decided(), "\n"), "n1 was lost: its agent was silent for 20s")
	})
}

// TestTheCoordinatorsNodeLeaves makes the coordinator's node leave in order. Another node
// coordinates at once, and waits for no node that has left. The other nodes follow it.
func TestTheCoordinatorsNodeLeaves(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(5, forever)
		p.settled(5)
		q[0].Report("", wire.Draining{Why: "maintenance"})
		<-q[0].done
		left := time.Now()
		q[0].candidate.Transfer()
		synctest.Wait()
		if l := p.leader(); l == q[0] || time.Since(left) > lease/election.ElectionsPerLease {
			t.Errorf("%s leads after %v", l.name, time.Since(left))
		}
		p.crash(q[0])
		time.Sleep(2*lease + killTime)
		p.settled(3)
		for _, a := range q[1:] {
			a.exitAll(1, 0)
		}
		p.ended(2, q[1:]...)
		text := strings.Join(p.decided(), "\n")
		want(t, text, "n1 leaves: maintenance", "n1 has left: maintenance")
		if strings.Contains(text, "lost") || strings.Contains(text, "restart") {
			t.Error(text)
		}
	})
}

// TestMostVotersLeave makes most voters leave in order, at the same time. The remaining voters are
// then a majority.
func TestMostVotersLeave(t *testing.T) {
	together(t, 2, func(t *testing.T, p *peerage) {
		q := p.addAll(5, secondIsLast)
		p.settled(5)
		for _, a := range q[1:4] {
			a.Report("", wire.Draining{Why: "maintenance"})
			go func() {
				<-a.done
				a.candidate.Close()
			}()
		}
		p.ended(2, q[0], q[4])
		if text := strings.Join(append(p.decided(), p.warnings...), "\n"); strings.Contains(text, "lost") || strings.Contains(text, "any more") {
			t.Error(text)
		}
	})
}

// TestALostNodeWakesUp wakes a lost node after the coordinator that lost it, or a later one, was
// replaced. Ranks on another node have replaced the lost node's ranks.
func TestALostNodeWakesUp(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(6, forever)
		p.settled(5)
		for range 2 {
			p.crash(p.leader())
			time.Sleep(2 * lease)
		}
		l := p.leader()
		asleep := 0
		for i, a := range q {
			if !p.dead[a.name] {
				continue
			}
			asleep++
			_, err := session.Join(t.Context(), session.Options{
				Target: l.candidate.election.Self().Addr, Node: node(i + 1), Former: a.Membership(), Warn: p.warn,
				Dial: func(ctx context.Context) (net.Conn, error) {
					return p.dial(l.name)(ctx, l.candidate.election.Self().Addr)
				},
			})
			if _, refused := errors.AsType[*session.RefusedError](err); !refused || !strings.Contains(err.Error(), "was counted as lost") {
				t.Errorf("%s: %v", a.name, err)
			}
		}
		if asleep != 2 {
			t.Errorf("%d nodes were lost", asleep)
		}
	})
}

// TestTheCoordinatorIsCutOff checks that a coordinator that is cut off gives no orders. The world
// checks that the ranks on its node end before other ranks replace them.
func TestTheCoordinatorIsCutOff(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(4, secondIsLast)
		p.settled(3)
		p.part("n1")
		cut := time.Now()
		<-q[0].done
		if d := time.Since(cut); d > lease+lease/4 {
			t.Errorf("its agent goes on for %v", d)
		}
		want(t, q[0].Err().Error(), "has not heard the coordinator")
		p.ended(2, q[1:]...)
	})
}

// TestAMinorityOfMany cuts off two nodes of six, one of them the coordinator's.
func TestAMinorityOfMany(t *testing.T) {
	together(t, 4, func(t *testing.T, p *peerage) {
		q := p.addAll(6, secondIsLast)
		p.settled(5)
		p.part("n1", "n2")
		<-q[0].done
		<-q[1].done
		if q[0].Err() == nil || q[1].Err() == nil {
			t.Errorf("%v, %v", q[0].Err(), q[1].Err())
		}
		p.ended(2, q[2:]...)
	})
}

// TestNoDecisionsWithoutAMajority kills two of three nodes.
func TestNoDecisionsWithoutAMajority(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(3, forever)
		p.settled(3)
		p.crash(q[0])
		p.crash(q[1])
		<-q[2].done
		want(t, q[2].Err().Error(), "has not heard the coordinator", "cannot reach a majority")
		if n := q[2].attempts(); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// TestAShortCut cuts the coordinator off so briefly that it is deposed but no rank ends.
func TestAShortCut(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(4, forever)
		p.settled(3)
		p.part("n1")
		time.Sleep(lease * 2 / 5)
		p.part()
		time.Sleep(2 * lease)
		if l := p.leader(); l == q[0] {
			t.Error("no node took over")
		}
		for _, a := range q {
			a.exitAll(0, 0)
		}
		p.ended(1, q...)
	})
}

// TestAShortCutOfAnAgent cuts off a node for two fifths of a lease, at eight phases of its
// heartbeats. The node keeps its lease.
func TestAShortCutOfAnAgent(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		q := p.addAll(4, forever)
		p.settled(3)
		for phase := range 8 {
			time.Sleep(lease + time.Duration(phase)*lease/40)
			p.part("n3")
			time.Sleep(lease * 2 / 5)
			p.part()
			time.Sleep(2 * lease)
			if err := q[2].Err(); err != nil {
				t.Errorf("phase %d: %v", phase, err)
				break
			}
		}
		time.Sleep(time.Minute) // by then, servers have closed connections whose end was lost in a cut
		for _, a := range q {
			a.exitAll(0, 0)
		}
		p.ended(1, q...)
	})
}

// TestALeaderWithoutRanks checks that a leader on a node without ranks is replaced when it is lost,
// and that no rank notices.
func TestALeaderWithoutRanks(t *testing.T) {
	together(t, 2, func(t *testing.T, p *peerage) {
		q := p.addAll(5, forever)
		p.settled(5)
		l := p.leader()
		for l.attempts() > 0 { // until a spare leads
			p.part(l.name)
			l = p.leader()
			p.part()
			time.Sleep(lease)
		}
		p.crash(l)
		time.Sleep(3 * lease)
		left := slices.DeleteFunc(slices.Clone(q), func(a *process) bool { return a == l })
		for _, a := range left {
			a.exitAll(0, 0)
		}
		p.ended(1, left...)
	})
}

// TestCoordinatorsDieOneAfterAnother kills coordinators until too few nodes are left. Each next
// coordinator knows the decisions of the one before.
func TestCoordinatorsDieOneAfterAnother(t *testing.T) {
	together(t, 2, func(t *testing.T, p *peerage) {
		q := p.addAll(6, forever)
		p.settled(5)
		for range 3 {
			p.crash(p.leader())
			time.Sleep(4 * lease)
		}
		var left []*process
		for _, a := range q {
			if !p.dead[a.name] {
				left = append(left, a)
			}
		}
		attempts := 1
		for _, a := range left {
			a.agent.mu.Lock()
			for _, s := range a.starts {
				attempts = max(attempts, s.Attempt+1)
			}
			a.agent.mu.Unlock()
		}
		for _, a := range left {
			a.exitAll(attempts-1, 0)
		}
		p.ended(attempts, left...)
	})
}

// losses is how many random losses the tests try. One loss takes a second with the race detector.
var losses uint64 = 40

// TestCoordinatorsDieAtAnyTime kills or cuts off the first coordinator, and sometimes also the
// second, a lease later. All survivors agree on how the job ended.
func TestCoordinatorsDieAtAnyTime(t *testing.T) {
	for seed := range losses {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			together(t, 3, func(t *testing.T, p *peerage) {
				random := rand.New(rand.NewPCG(seed, 0))
				q := p.addAll(5, secondIsLast)
				p.settled(5)
				time.Sleep(time.Duration(random.Int64N(int64(lease))))
				if random.IntN(2) == 0 {
					p.crash(q[0])
				} else {
					p.part("n1")
				}
				time.Sleep(lease + time.Duration(random.Int64N(int64(lease))))
				left := q[1:]
				if l := p.leading(); l != nil && l != q[0] && random.IntN(2) == 0 {
					p.crash(l)
					left = slices.DeleteFunc(slices.Clone(left), func(a *process) bool { return a == l })
				}
				p.agree(left)
			})
		})
	}
}

// TestNodesLeaveAtAnyTime makes the first coordinator and other nodes leave in order at random
// times, some of them at once. The job continues with the remaining nodes.
func TestNodesLeaveAtAnyTime(t *testing.T) {
	for seed := range losses {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			together(t, 3, func(t *testing.T, p *peerage) {
				random := rand.New(rand.NewPCG(seed, 1))
				upTo := func(d time.Duration) time.Duration {
					return time.Duration(random.Int64N(int64(d))) * time.Duration(random.IntN(2))
				}
				q := slices.Clone(p.addAll(7, secondIsLast))
				p.settled(5)
				random.Shuffle(6, func(i, j int) { q[1+i], q[1+j] = q[1+j], q[1+i] })
				leave := 1 + random.IntN(4)
				for _, a := range q[:leave] {
					when, within := upTo(lease/2), upTo(lease)
					time.AfterFunc(when, func() { a.Report("", wire.Draining{Why: "maintenance", Within: within}) })
					go func() {
						<-a.done
						if a.finish == nil && a.candidate.Transfer() {
							a.candidate.Close()
						}
					}()
				}
				p.agree(q[leave:])
				if text := strings.Join(p.decided(), "\n"); strings.Contains(text, "was lost") {
					t.Error(text)
				}
			})
		})
	}
}

// TestAFirewallIsMended opens a firewall while the job runs. The coordinator probes the nodes
// behind it again, and these nodes then keep the log too.
func TestAFirewallIsMended(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		for _, name := range []string{"n2", "n3", "n4", "n5"} {
			p.firewalled[name] = true
		}
		q := p.addAll(5, secondIsLast)
		time.Sleep(lease)
		if others := q[0].candidate.election.Others(); len(others) > 0 {
			t.Fatalf("%v vote", others)
		}
		p.net.Lock()
		clear(p.firewalled)
		p.net.Unlock()
		time.Sleep(2 * lease)
		p.settled(5)
		p.crash(q[0])
		p.ended(2, q[1:]...)
	})
}

// TestALargeJobIsTakenOver takes over a job with an order that names too many nodes for one
// message.
func TestALargeJobIsTakenOver(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		p.want.Job.Request.Order = placement.Order{By: placement.ByList, List: []string{"n1", "n2", "n3", "n4"}}
		for i := range 50_000 {
			p.want.Job.Request.Order.List = append(p.want.Job.Request.Order.List, fmt.Sprintf("node-of-a-long-name-%d", i))
		}
		q := p.addAll(4, secondIsLast)
		p.settled(3)
		p.crash(q[0])
		p.ended(2, q[1:]...)
	})
}
