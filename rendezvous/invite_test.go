package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// thirdIsLast is like secondIsLast, with one more attempt.
func thirdIsLast(attempt int) (int, bool) { return 0, attempt > 1 }

// again restarts the processes of dead nodes.
func (p *peerage) again(nodes ...int) (started []*process) {
	p.t.Helper()
	for _, i := range nodes {
		started = append(started, p.add(i, p.clear(i)))
	}
	return started
}

// clear makes room for a new process of a dead node, and returns how the node's ranks exit.
func (p *peerage) clear(i int) func(int) (int, bool) {
	at := slices.IndexFunc(p.process, func(q *process) bool { return q.name == "n"+strconv.Itoa(i) })
	old := p.process[at]
	<-old.over
	p.net.Lock()
	delete(p.dead, old.name)
	p.net.Unlock()
	p.process = slices.Delete(p.process, at, at+1)
	return old.exit
}

// invited checks that these agents learn that their job runs elsewhere, and join it there. It skips
// agents that learned this from the answer to their first message.
func (p *peerage) invited(all ...*process) {
	p.t.Helper()
	for _, q := range all {
		if q.Membership().Epoch == p.epoch {
			continue
		}
		select {
		case <-q.done:
		case <-time.After(lease):
			p.t.Fatalf("%s is not invited\n%s", q.name, strings.Join(p.warnings, "\n"))
		}
		e, ok := errors.AsType[*wire.ElsewhereError](q.Err())
		if !ok {
			p.t.Fatalf("%s ends with %v", q.name, q.Err())
		}
		q.Close("it goes elsewhere")
		q.agent = p.enter(q, e.Addrs)
	}
}

// TestTheFirstNodeIsStartedAgain restarts the first node twice: at once, and after the coordinator
// has counted the node as lost. The node then runs its ranks in the job of the next leader.
func TestTheFirstNodeIsStartedAgain(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		first := p.addAll(3, thirdIsLast)[0]
		for attempt := range 2 {
			p.settled(3)
			p.crash(first)
			began := time.Now()
			first = p.again(1)[0]
			p.invited(first)
			if took := time.Since(began); attempt == 1 && took > 3*inviteEvery {
				t.Errorf("it was counted as lost at once, and is back after %v", took)
			}
		}
		p.ended(3, p.process...)
		for rank := range 3 {
			if n := p.births("j1", rank); n != 3 {
				t.Errorf("rank %d was started %d times, want 3", rank, n)
			}
		}
	})
}

// TestAnInvitationBeforeTheAgent checks that the invited process redirects its agent in the answer
// to the agent's first message.
func TestAnInvitationBeforeTheAgent(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		first := p.addAll(3, secondIsLast)[0]
		p.settled(3)
		p.crash(first)
		leader := p.leader()
		q := p.begin(1, p.clear(1))
		time.Sleep(lease)
		q.mu.Lock()
		notes := strings.Join(q.notes, "\n")
		q.mu.Unlock()
		if want := "n1 joins anew: node " + leader.name + " leads this job already, at "; strings.Count(notes, want) != 1 {
			t.Errorf("it says %q, not %q", notes, want)
		}
		q.agent = p.enter(q, nil)
		p.ended(2, p.process...)
	})
}

// TestNewNodesMeetTheFirst starts new nodes that meet the first node before it is invited. All of
// them join the old job, and later nodes find that job through the first node.
func TestNewNodesMeetTheFirst(t *testing.T) {
	together(t, 7, func(t *testing.T, p *peerage) {
		p.addAll(7, thirdIsLast)
		p.settled(5)
		voters := map[string]bool{}
		for _, v := range p.process[0].candidate.election.Others() {
			voters[v.Name] = true
		}
		var idle []int
		for i := 2; i <= 7; i++ {
			if !voters[fmt.Sprintf("n%d", i)] {
				idle = append(idle, i)
			}
		}
		for _, i := range append([]int{1}, idle...) {
			p.crash(p.process[i-1])
		}
		leader := p.leader()
		p.part("n1", fmt.Sprintf("n%d", idle[0]), fmt.Sprintf("n%d", idle[1]))
		fresh := p.again(1, idle[0], idle[1])
		time.Sleep(2 * lease)
		p.part()
		p.invited(fresh...)
		time.Sleep(lease)
		p.crash(fresh[2])
		p.again(idle[1])
		if l := p.leader(); l != leader {
			t.Errorf("%s leads, not %s", l.name, leader.name)
		}
		p.ended(3, p.process...)
	})
}

// TestAMinorityInvitesNobody cuts off the leader together with a new first node. The old leader
// must not invite that node. The leader that a majority elects invites it once the network permits.
func TestAMinorityInvitesNobody(t *testing.T) {
	together(t, 5, func(t *testing.T, p *peerage) {
		p.addAll(5, secondIsLast)
		p.settled(5)
		p.crash(p.process[0])
		old := p.leader()
		p.part("n1", old.name)
		fresh := p.again(1)[0]
		time.Sleep(2 * lease)
		synctest.Wait()
		select {
		case <-fresh.done:
			t.Fatalf("n1 was invited by a minority: %v", fresh.Err())
		default:
		}
		if old.Err() == nil {
			t.Error("the leader that was cut off goes on")
		}
		p.part()
		p.invited(fresh)
		p.crash(old)
		p.again(int(old.name[1] - '0'))
		p.ended(2, p.process...)
	})
}

// TestTheFirstNodeIsLostBeforeTheJobBegins checks that the waiting nodes wait for the restarted
// first node.
func TestTheFirstNodeIsLostBeforeTheJobBegins(t *testing.T) {
	together(t, 3, func(t *testing.T, p *peerage) {
		first, second := p.add(1, success), p.add(2, success)
		time.Sleep(2 * establishAfter)
		p.crash(first)
		p.epoch = "" // that job is not continued
		p.again(1)
		p.invited(second)
		p.add(3, success)
		p.ended(1, p.process...)
	})
}

// TestWhatIsNotGivenUp checks which jobs a coordinator does not give up for an invitation.
func TestWhatIsNotGivenUp(t *testing.T) {
	same := func() *pb.Invitation {
		return &pb.Invitation{
			Job: "j1", Facts: map[string]string{"--nodes": "3:3"}, Node: "n2", Voters: &pb.Voters{Addrs: []string{"n2:1", "n3:1"}}, Epoch: "another",
		}
	}
	for name, c := range map[string]struct {
		does func(*Coordinator, *pb.Invitation)
		why  string
	}{
		"the same job, begun":        {func(c *Coordinator, _ *pb.Invitation) { c.succession.established = true }, "it leads a job of its own"},
		"the same job, later":        {func(c *Coordinator, _ *pb.Invitation) { c.restored = true }, "it leads a job of its own"},
		"another job":                {func(c *Coordinator, s *pb.Invitation) { s.Job = "j2" }, "its job is j1, and this is j2"},
		"another command":            {func(c *Coordinator, s *pb.Invitation) { s.Facts["--nodes"] = "2:2" }, "--nodes differs: 2:2 here, 3:3 on the coordinator"},
		"an invitation from nowhere": {func(_ *Coordinator, s *pb.Invitation) { s.Voters = nil }, "names no address"},
		"the same coordinator":       {func(c *Coordinator, s *pb.Invitation) { s.Epoch = c.state.Epoch }, ""},
	} {
		c0 := NewCoordinator(Config{Facts: same().GetFacts(), HasID: true, Candidate: NewCandidate(CandidateConfig{Node: "n1", Lease: lease})})
		s0 := one(3)
		s0.OnlyJob = true
		c0.state = replica.New()
		c0.state.Apply(replica.Began(now(), "own"))
		c0.state.Apply(replica.Entry{At: now(), Submitted: &s0})
		c0.onlyJob = c0.track(c0.state.Jobs["j1"])
		s := same()
		c.does(c0, s)
		if err := c0.succession.invited(s); c0.succession.invitation != nil || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, %v", name, err, c0.succession.invitation)
		}
		c0.cfg.HasID, c0.succession.established, c0.restored = false, false, false
		s = same()
		s.Job = "j2"
		if err := c0.succession.invited(s); err != nil || c0.succession.invitation == nil || wire.Elsewhere(status.Convert(c0.cfg.Candidate.election.Elsewhere())) == nil {
			t.Errorf("a job without a name of its own is not given up: %v", err)
		}
	}
}
