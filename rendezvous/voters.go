package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// electorate is how many of n nodes vote: an odd number, for an even one bears no more losses than the one below it.
func electorate(n int) int {
	if n < 3 {
		return 1
	}
	return min(wire.MaxVoters, (n-1)|1)
}

// maxRefused is how many nodes in a row may not be reached before all of them are left alone for a while: first for a lease, and each time
// for twice as long, but for no longer than maxRest. A firewall may be mended while the job runs.
const (
	maxRefused = 3
	maxRest    = 10 * time.Minute
)

// nominate notes that a node could vote.
func (c *Coordinator) nominate(m *member, v *pb.Voter) {
	if c.sole == nil {
		c.introduce(m)
	}
	if c.sole == nil || c.cfg.Candidate == nil || m.name == c.cfg.Candidate.cfg.Node {
		return
	}
	if voter := wire.ToVoter(v); voter.ID != 0 && voter.Name == m.name && !slices.Contains(c.reachable, voter) {
		c.dropVoter(m.name)
		c.unasked.add(voter)
	}
	c.introduce(m)
	c.elect()
}

// replaceVoter has another node vote in place of one that is gone, and invites it again if it was the first.
func (c *Coordinator) replaceVoter(node string) {
	if c.cfg.Candidate != nil && c.sole != nil && c.sole.Result == nil {
		c.dropVoter(node)
		c.elect()
		c.invite()
	}
}

func (c *Coordinator) dropVoter(node string) {
	c.reachable = slices.DeleteFunc(c.reachable, func(v quorum.Voter) bool { return v.Name == node })
	c.unasked.drop(node)
}

// elect has the log kept by the nodes that should. Those that nobody has reached yet are asked before.
func (c *Coordinator) elect() {
	if c.term == nil && (!c.established || len(c.members) < 3) || c.sole.Result != nil {
		return
	}
	for len(c.reachable)+c.asked < wire.MaxVoters-1 && c.refused+c.asked < maxRefused {
		v, any := c.unasked.next()
		if !any {
			break
		}
		c.asked++
		go func() {
			err := c.cfg.Candidate.greet(v)
			c.post(func() { c.greeted(v, err) })
		}()
	}
	n := electorate(1 + len(c.reachable))
	want := append([]quorum.Voter{c.cfg.Candidate.voter}, c.reachable[:n-1]...)
	if c.term == nil && n == 1 || slices.Equal(want, c.want) {
		return
	}
	c.want = want
	for _, m := range c.members { // before they vote: then all know where to turn to
		c.introduce(m)
	}
	if c.term == nil {
		c.replicate()
	}
	if c.term != nil {
		c.term.Reconfigure(want)
	}
}

func (c *Coordinator) greeted(v quorum.Voter, err error) {
	c.asked--
	switch {
	case c.members[v.Name] == nil:
	case err != nil:
		c.warn(fmt.Errorf("node %s cannot keep the state of the job, and is asked again: %w", v.Name, err))
		c.unasked.add(v)
		if c.refused++; c.refused == maxRefused {
			c.rest = min(max(2*c.rest, c.cfg.Lease), maxRest)
			time.AfterFunc(c.rest, func() { c.post(c.askAgain) })
		}
	default:
		c.refused, c.rest = 0, 0
		c.reachable = append(c.reachable, v)
	}
	c.elect()
}

// askAgain asks nodes that could not be reached.
func (c *Coordinator) askAgain() {
	c.refused = 0
	c.elect()
}

// replicate begins the log.
func (c *Coordinator) replicate() {
	term, err := c.cfg.Candidate.found()
	if err != nil {
		c.warn(fmt.Errorf("the job ends with this node: %w", err))
		return
	}
	c.term = term
	c.alone.Store(false)
	c.log.Move(voters{term})
}

// establishAfter is what a job may lose at most when its first coordinator is lost before others know of it. So a launch waits for nobody.
const establishAfter = time.Second

// establish hears that ranks start, which makes a job worth to be taken over.
func (c *Coordinator) establish() {
	if c.cfg.Candidate == nil || c.sole == nil || c.establishing != nil {
		return
	}
	c.establishing = time.AfterFunc(establishAfter, func() {
		c.post(func() {
			c.established = true
			c.elect()
		})
	})
}

// part lets an agent go that has said goodbye. One whose node votes, or is about to, waits for others to vote without it, as long as it
// waits for anything: where most of the voters go at once, those that stay would be no majority.
func (c *Coordinator) part(node string, l *link) {
	if c.term == nil || c.sole == nil || c.sole.Result != nil {
		c.log.Then(func() { l.cut <- nil })
		return
	}
	c.parting[l] = true
	c.term.Release(node, func(err error) {
		if err != nil {
			return // another coordinator has to know
		}
		go c.post(func() {
			delete(c.parting, l)
			c.log.Then(func() { l.cut <- nil })
		})
	})
}

// awaitDepartures waits until no agent is about to leave, or the limit is over, and says whether one is here that is not, and has
// something to do.
func (c *Coordinator) awaitDepartures(limit time.Duration) bool {
	late := time.After(limit)
	for {
		now, err := ask(c, func() (departures, error) { return c.departures(), nil })
		if err != nil || now.next == nil {
			return now.stays
		}
		select {
		case <-now.next:
		case <-late:
			return now.stays
		case <-c.done:
			return false
		}
	}
}

// departures say what is to be known of agents that are about to leave: when the next one has, nil if none is, and whether others stay.
type departures struct {
	next  <-chan struct{}
	stays bool
}

func (c *Coordinator) departures() (d departures) {
	if c.sole == nil { // no agent of a cluster keeps its log
		return departures{stays: true}
	}
	for l := range c.parting {
		d.next = l.over
	}
	for _, m := range c.members {
		if m.leaving {
			d.next = m.gone
		} else {
			d.stays = c.sole.Result == nil
		}
	}
	return d
}

// voted tells people who votes now.
func (c *Coordinator) voted() {
	if c.sole == nil {
		return
	}
	successors := strings.Join(wire.Convert(c.cfg.Candidate.others(), func(v quorum.Voter) string { return v.Name }), ", ")
	if successors != c.successors {
		c.successors = successors
		c.say(fmt.Sprintf("nodes that can take over from %s: %s", c.cfg.Candidate.cfg.Node, cmp.Or(successors, "none")))
	}
}

// introduce tells an agent who votes, or is to.
func (c *Coordinator) introduce(m *member) {
	if len(c.want) > 0 {
		c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Voters{Voters: c.electors()}})
	}
}

func (c *Coordinator) electors() *pb.Voters {
	if c.sole == nil {
		return &pb.Voters{Addrs: append([]string{c.cfg.Candidate.cfg.Addr}, c.cfg.Candidate.fellows()...)}
	}
	return &pb.Voters{Addrs: wire.Convert(c.want, func(v quorum.Voter) string { return v.Addr })}
}
