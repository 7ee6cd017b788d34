package jobstate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// roster has the nodes of the job.
type roster struct {
	nodes map[string]*jobNode
	// addrs has the name of the node at each address.
	addrs map[netip.Addr]string
	gpus  int
	// spares are the nodes without a node rank. They are kept apart because, while a node is
	// missing, each report looks for a spare and must not cost O(nodes).
	spares map[string]bool
	// joined counts the nodes that ever joined.
	joined int
	// lost says that a node was lost; loss is the newest loss in words.
	lost bool
	loss string
}

// jobNode is a present node.
type jobNode struct {
	placement.Node
	// nodeRank is its place in the plan, or spare.
	nodeRank int
	// ran says that ranks have started there.
	ran bool
	// leaves is the earliest announced departure, or nil.
	leaves *departure
}

const spare = -1

// clash returns the name of another node that already has a node's address, if the two may not
// share the address.
func (r *roster) clash(n placement.Node) (string, bool) {
	other := r.addrs[n.Addr.Unmap()]
	if other == "" || other == n.Name || placement.SameMachine(r.nodes[other].Node, n) {
		return "", false
	}
	return other, true
}

// add adds a node as a spare.
func (r *roster) add(n placement.Node) {
	if old := r.nodes[n.Name]; old != nil {
		r.remove(old)
		r.joined--
	}
	r.joined++
	r.nodes[n.Name] = &jobNode{Node: n}
	r.assign(n.Name, spare)
	r.addrs[n.Addr.Unmap()] = n.Name
	r.gpus += len(n.GPUs)
}

func (r *roster) remove(n *jobNode) {
	delete(r.nodes, n.Name)
	delete(r.spares, n.Name)
	r.freeAddr(n)
	r.gpus -= len(n.GPUs)
}

// freeAddr takes a node's address from it. If another node of the same machine has the address too,
// addrs then names that node.
func (r *roster) freeAddr(n *jobNode) {
	addr := n.Addr.Unmap()
	if r.addrs[addr] != n.Name {
		return
	}
	delete(r.addrs, addr)
	if n.Labels[placement.MachineLabel] == "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if r.nodes[name].Addr.Unmap() == addr {
			r.addrs[addr] = name
			return
		}
	}
}

// assign gives a node a node rank, or makes it a spare.
func (r *roster) assign(name string, nodeRank int) {
	r.nodes[name].nodeRank = nodeRank
	if nodeRank == spare {
		r.spares[name] = true
	} else {
		delete(r.spares, name)
	}
}

func (r *roster) noteRan(name string)                        { r.nodes[name].ran = true }
func (r *roster) noteGPUs(name string, gpus []placement.GPU) { r.nodes[name].GPUs = gpus }
func (r *roster) noteLeaving(name string, d departure)       { r.nodes[name].leaves = &d }
func (r *roster) noteLoss(text string)                       { r.lost, r.loss = true, text }

// list returns the spares by name, so that their order does not depend on a map.
func (r *roster) list() []placement.Node {
	nodes := make([]placement.Node, 0, len(r.spares))
	for name := range r.spares {
		nodes = append(nodes, r.nodes[name].Node)
	}
	slices.SortFunc(nodes, byName)
	return nodes
}

func byName(a, b placement.Node) int { return cmp.Compare(a.Name, b.Name) }

// Has reports whether a node is one of the job's nodes.
func (s *State) Has(node string) bool { return s.roster.nodes[node] != nil }

// joined gives a new node a node rank if a node is wanted, and otherwise keeps it as a spare.
func (s *State) joined(n placement.Node) string {
	if other, clashes := s.roster.clash(n); clashes && !s.spec.Request.SharedAddr {
		return fmt.Sprintf("%s is not used: its address %v is %s's; give each node its own", n.Name, n.Addr, other)
	}
	if old := s.roster.nodes[n.Name]; old != nil {
		if old.nodeRank != spare {
			return s.step.ignore()
		}
		s.forget(old)
	}
	s.roster.add(n)
	s.shortage.queue("")
	return s.use(n, words.Named(n)+" is here as a spare")
}

// freed notes that a node has more free GPUs. If the node is a spare, it may now have room for
// ranks. If it has ranks, it keeps these ranks until the job is placed anew.
func (s *State) freed(ev job.Freed) string {
	n := s.roster.nodes[ev.Node]
	if n == nil {
		return s.step.ignore()
	}
	gpus, changed := ev.Free(n.GPUs)
	if !changed {
		return s.step.ignore()
	}
	s.roster.noteGPUs(n.Name, gpus)
	if n.nodeRank != spare {
		return ev.String()
	}
	return words.Also(ev.String(), s.use(n.Node, ""))
}

// use gives a spare a node rank if a node is wanted. Otherwise it returns the news about the spare.
func (s *State) use(n placement.Node, news string) string {
	if s.placesAll() {
		if s.gathering() {
			return s.placeAll(false)
		}
	} else if text, used := s.fill(n); used {
		return text
	}
	return words.Also(news, s.grow())
}

// fill gives a node to the units that wait for one. All units that start then are on the node rank
// that the node takes.
func (s *State) fill(n placement.Node) (reason string, used bool) {
	var waiting []int
	prepared := false
	for _, id := range s.shortage.homeless {
		u := &s.progress.units[id]
		if nodeRank, vacant := s.vacancy(u); vacant && !used {
			used = s.substitute(nodeRank, []placement.Node{n}) == nil
		}
		if _, vacant := s.vacancy(u); vacant {
			waiting = append(waiting, id)
			continue
		}
		used, prepared = true, true
		reason = s.prepare(u)
	}
	s.shortage.setHomeless(waiting)
	if used && !prepared { // the unit lacks another node too
		reason = s.wanting()
	}
	return reason, used
}

// forget makes the parts other than the roster forget a node.
func (s *State) forget(n *jobNode) {
	if n.leaves != nil {
		s.departures.forget(n.Name)
	}
	s.masters.forgive(n.Name)
}

// lost takes a node away. The units with unfinished ranks there fail. The job does not wait for the
// end of the node's processes.
func (s *State) lost(ev job.Lost) string {
	n := s.roster.nodes[ev.Node]
	if n == nil {
		return s.step.ignore()
	}
	s.roster.noteLoss(fmt.Sprintf("%s was lost: %s", n.Name, ev.Why))
	s.step.lose(s.fault(report.Failure{Node: n.Name, Rank: -1, Attempt: s.budget.attempts, Why: s.roster.loss}))
	return s.removeNode(n)
}

// removeNode takes away a node that was lost or has left.
func (s *State) removeNode(n *jobNode) string {
	s.forget(n)
	s.roster.remove(n)
	if n.nodeRank == spare {
		if !s.decided() && s.placesAll() && s.gathering() {
			return s.roster.loss + "; " + s.gatherLess()
		}
		return s.roster.loss + "; it was a spare"
	}
	s.plan.vacate(n.nodeRank)
	var asking []*master
	for i := range s.masters.of {
		m := &s.masters.of[i]
		if m.askedFor(n.Name) {
			m.dropQuestion()
		}
		if len(m.pending) > 0 {
			m.dropAnswers(n.nodeRank)
			asking = append(asking, m)
		}
	}
	text := s.nodeGone(n)
	for _, m := range asking {
		launched, _ := s.launch(m)
		text = words.Also(text, launched)
	}
	return text
}

// gatherLess continues to gather after the loss of a spare.
func (s *State) gatherLess() string {
	s.shortage.need(s.shortage.enough - 1)
	if least := s.spec.Request.MinNodes; s.strict() && len(s.roster.nodes) < least {
		s.timers.clear(job.AlarmLastCall)
		s.shortage.need(least)
	}
	return s.placeAll(false)
}

// nodeGone tells the units of a node rank that their node is gone. The units with unfinished ranks
// fail together, which counts as one failure.
func (s *State) nodeGone(n *jobNode) string {
	units := s.unitsAt(n.nodeRank)
	lived := s.settleAll(units, n.nodeRank) // before anything is decided
	loss := s.fault(report.Failure{Node: n.Name, Rank: -1, Attempt: units[0].attempt, Why: s.roster.loss})
	var failed, displaced []*unit
	reason := ""
	for i := range units {
		u := &units[i]
		if lived[i] && s.weighs(u, loss.Rank) {
			s.verdicts.weigh(u.cause, loss.Rank)
			reason = words.Also(reason, s.explain(u, loss))
		}
		switch {
		case s.decided(), u.phase == job.Finished:
			continue
		case u.phase == job.Preparing:
			displaced = append(displaced, u)
		case u.phase == job.Stopping && u.cause != nil:
			if lived[i] {
				reason = words.Also(reason, s.settle(u))
			}
		case u.phase == job.Running && n.leaves != nil:
			reason = words.Also(reason, s.vacate(u, *n.leaves))
		case u.phase == job.Running && s.departures.end != nil:
			reason = words.Also(reason, s.vacate(u, *u.notice.departure))
		case s.expendableNode(u, n.nodeRank):
			return s.loseRanks(u, u.member(n.nodeRank), s.roster.loss, s.groupAt(u, n.nodeRank).Bundles...)
		case (u.phase == job.Running || u.phase == job.Stopping) && (lived[i] || u.left > 0):
			failed = append(failed, u)
		}
		if m := s.masterOf(u); n.nodeRank == m.home {
			m.closePort()
		}
	}
	if len(failed) > 0 && !s.decided() {
		reason = words.Also(s.fail(loss, failed...), reason)
	} else {
		reason = words.Also(s.roster.loss, reason)
	}
	return words.Also(reason, s.rehouse(displaced))
}

// settleAll notes that no process of these units lives on a node rank. It reports for each unit
// whether a process might have lived until now.
func (s *State) settleAll(units []unit, nodeRank int) (lived []bool) {
	lived = make([]bool, len(units))
	for i := range units {
		if m := units[i].member(nodeRank); m.live {
			lived[i] = true
			s.progress.settle(&units[i], m)
		}
	}
	return lived
}

// rehouse finds new nodes for units that lost theirs before they started, at no cost to the budget.
func (s *State) rehouse(displaced []*unit) (reason string) {
	if len(displaced) > 0 && s.placesAll() {
		s.spendNothing(s.progress.units[1:])
		s.progress.shrink()
		return s.placeAll(false)
	}
	for _, u := range displaced {
		if !s.decided() && s.departures.end == nil {
			reason = s.place(u)
		}
	}
	return reason
}

// rejoined repeats the orders that a node has not answered, since its broken connection may have
// lost them.
func (s *State) rejoined(ev job.Rejoined) string {
	n := s.roster.nodes[ev.Node]
	if n == nil || n.nodeRank == spare {
		return s.step.ignore()
	}
	if !s.decided() {
		s.repeatQuestions(n)
	}
	units := s.unitsAt(n.nodeRank)
	for i := range units {
		u := &units[i]
		switch m := u.member(n.nodeRank); {
		case !m.live:
		case u.told:
			s.orderStop(u, n.nodeRank)
		default:
			if u.phase == job.Running && !m.started {
				s.orderStart(u, n.nodeRank)
			}
			if u.notice.departure != nil && !m.ready {
				s.remind(u, n.nodeRank)
			}
		}
	}
	if len(s.step.actions) == 0 {
		return s.step.ignore()
	}
	return fmt.Sprintf("%s is back; repeating %s", n.Name, words.Count(len(s.step.actions), "order"))
}

// repeatQuestions repeats the questions about the master that a node has not answered.
func (s *State) repeatQuestions(n *jobNode) {
	for i := range s.masters.of {
		if m := &s.masters.of[i]; m.askedFor(n.Name) {
			s.step.do(*m.question)
		}
	}
	if s.masters.at(n.nodeRank) && !s.gang() {
		s.admit()
	}
	for i := range s.masters.of {
		if m := &s.masters.of[i]; m.pending[n.nodeRank] != 0 {
			s.orderReach(m, n.nodeRank)
		}
	}
}
