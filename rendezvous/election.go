package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/quorum"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// maxVoters is how many nodes keep the state of a job: of five, two may be lost at the same time.
const maxVoters = 5

// electorate is how many of n nodes vote: an odd number, for an even one bears no more losses than the one below it.
func electorate(n int) int {
	if n < 3 {
		return 1
	}
	return min(maxVoters, (n-1)|1)
}

// maxRefused is how many nodes in a row may not be reached before all of them are left alone for a while: first for a lease, and each time
// for twice as long, but for no longer than maxRest. A firewall may be mended while the job runs.
const (
	maxRefused = 3
	maxRest    = 10 * time.Minute
)

// seat notes that a node could vote.
func (c *Coordinator) seat(m *member, v *pb.Voter) {
	if c.cfg.Seat == nil || m.name == c.cfg.Seat.cfg.Node {
		return
	}
	if voter := toVoter(v); voter.ID != 0 && voter.Name == m.name && !slices.Contains(c.fit, voter) {
		c.unfit(m.name)
		c.candidates = append(c.candidates, voter)
	}
	c.introduce(m)
	c.elect()
}

// unseat has another node vote in place of one that is gone, and calls it back if it was the first.
func (c *Coordinator) unseat(node string) {
	if c.cfg.Seat != nil && c.sole.Result == nil {
		c.unfit(node)
		c.elect()
		c.call()
	}
}

func (c *Coordinator) unfit(node string) {
	named := func(v quorum.Voter) bool { return v.Name == node }
	c.fit, c.candidates = slices.DeleteFunc(c.fit, named), slices.DeleteFunc(c.candidates, named)
}

// elect has the log kept by the nodes that should. Those that nobody has reached yet are asked before.
func (c *Coordinator) elect() {
	if c.term == nil && (!c.grown || len(c.members) < 3) || c.sole.Result != nil {
		return
	}
	for len(c.candidates) > 0 && len(c.fit)+c.asked < maxVoters-1 && c.refused+c.asked < maxRefused {
		v := c.candidates[0]
		c.candidates = c.candidates[1:]
		c.asked++
		go func() {
			err := c.cfg.Seat.greet(v)
			c.post(func() { c.greeted(v, err) })
		}()
	}
	n := electorate(1 + len(c.fit))
	want := append([]quorum.Voter{c.cfg.Seat.voter}, c.fit[:n-1]...)
	if c.term == nil && n == 1 || slices.Equal(want, c.want) {
		return
	}
	c.want = want
	for _, m := range c.members { // before they vote: then all know where to turn to
		c.introduce(m)
	}
	if c.term == nil {
		c.convene()
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
		c.candidates = append(c.candidates, v)
		if c.refused++; c.refused == maxRefused {
			c.rest = min(max(2*c.rest, c.cfg.Lease), maxRest)
			time.AfterFunc(c.rest, func() { c.post(c.askAgain) })
		}
	default:
		c.refused, c.rest = 0, 0
		c.fit = append(c.fit, v)
	}
	c.elect()
}

// askAgain asks nodes that could not be reached.
func (c *Coordinator) askAgain() {
	c.refused = 0
	c.elect()
}

// convene begins the log.
func (c *Coordinator) convene() {
	term, err := c.cfg.Seat.found()
	if err != nil {
		c.warn(fmt.Errorf("the job ends with this node: %w", err))
		return
	}
	c.term = term
	c.log.Move(voters{term})
}

// youth is what a job may lose at most when its first coordinator is lost before others know of it. So a launch waits for nobody.
const youth = time.Second

// grow hears that ranks start, which makes a job worth to be taken over.
func (c *Coordinator) grow() {
	if c.cfg.Seat == nil || c.growing != nil {
		return
	}
	c.growing = time.AfterFunc(youth, func() {
		c.post(func() {
			c.grown = true
			c.elect()
		})
	})
}

// part lets an agent go that has said goodbye. One whose node votes waits for others to vote without it, as long as it waits for anything:
// where most of the voters go at once, those that stay would be no majority.
func (c *Coordinator) part(node string, l *link) {
	if c.term == nil || c.sole.Result != nil || !c.votes(node) {
		c.log.Then(func() { l.cut <- nil })
		return
	}
	if c.parting == nil {
		c.parting = map[*link]string{}
	}
	c.parting[l] = node
}

// outstay waits until no agent is about to leave, or the limit is over, and says whether one is here that is not, and has something to do.
func (c *Coordinator) outstay(limit time.Duration) bool {
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

// votes says that another voter is a node's.
func (c *Coordinator) votes(node string) bool {
	return slices.ContainsFunc(c.cfg.Seat.others(), func(v quorum.Voter) bool { return v.Name == node })
}

// voted tells people who votes now, and lets those go that do not any more.
func (c *Coordinator) voted() {
	for l, node := range c.parting {
		if !c.votes(node) {
			c.log.Then(func() { l.cut <- nil })
			delete(c.parting, l)
		}
	}
	heirs := strings.Join(convert(c.cfg.Seat.others(), func(v quorum.Voter) string { return v.Name }), ", ")
	if heirs != c.heirs {
		c.heirs = heirs
		c.say(fmt.Sprintf("nodes that can take over from %s: %s", c.cfg.Seat.cfg.Node, cmp.Or(heirs, "none")))
	}
}

// introduce tells an agent who votes, or is to.
func (c *Coordinator) introduce(m *member) {
	if len(c.want) > 0 {
		c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Voters{Voters: c.electors()}})
	}
}

func (c *Coordinator) electors() *pb.Voters {
	return &pb.Voters{Addrs: convert(c.want, func(v quorum.Voter) string { return v.Addr })}
}
