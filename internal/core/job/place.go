package job

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
)

// place finds nodes for a unit that is to start, and waits for them if there are too few.
func (s *State) place(u *unit) string {
	if s.whole() {
		return s.placeAll(u.grows())
	}
	home, text := s.plan.slots[u.first], ""
	switch {
	case s.leaves(u):
		s.pass(u, Preparing)
		return s.label(u) + ": " + s.leaveWait(u)
	case home.vacant:
		if s.rehome(u.first, s.fit(s.list())) != nil && s.rehome(u.first, s.list()) != nil {
			s.shortage.homeless = append(s.shortage.homeless, u.id)
			return s.gather(u, s.wanting())
		}
	default:
		text = s.exchange(u.first)
	}
	if s.suspects.excluded[s.plan.slots[0].Node.Name] == unreachable.Cause {
		text = also(s.exchange(0), text)
	}
	return also(text, also(s.reused(u), s.prepare(u)))
}

// placeAll plans the whole job anew; surviving nodes keep their ranks. Unless there are as many nodes as it can use it waits for
// more, until the last call or because none can come.
func (s *State) placeAll(lastCall bool) string {
	u := &s.progress.units[0]
	if u.phase != Gathering {
		s.release()
	}
	if !s.worthAsking() {
		return s.gather(u, s.shortfall())
	}
	plan, err := s.solve(s.request())
	if err != nil {
		return s.infeasible(u, err)
	}
	if !lastCall && !s.closed() && !s.complete(plan) {
		s.shortage.enough = max(len(s.roster.nodes)+1, s.spec.Request.MaxNodes)
		if s.timers.armed[AlarmLastCall] == 0 {
			s.arm(AlarmLastCall)
		}
		return s.gather(u, s.shortfall())
	}
	s.adopt(plan)
	return also(s.reused(&s.progress.units[0]), s.prepare(&s.progress.units[0]))
}

// infeasible waits for what is missing, or ends the job when that can never come.
func (s *State) infeasible(u *unit, err error) string {
	e, ok := errors.AsType[*placement.InfeasibleError](err)
	if !ok || s.spec.FixedPool && !e.Ever {
		return s.unplaceable(err.Error())
	}
	s.timers.armed[AlarmLastCall] = 0
	if s.strict() {
		s.shortage.enough = len(s.roster.nodes) + e.Missing
	}
	switch {
	case e.Missing == 0:
		return s.gather(u, e.Error())
	case len(e.Nodes) > 0:
		return s.gather(u, s.shortfall()+"; "+e.Error())
	}
	return s.gather(u, s.shortfall())
}

// gather waits for nodes, for as long as the placement limit allows. A unit that begins to wait begins the limit anew.
func (s *State) gather(u *unit, why string) string {
	if s.closed() {
		return s.unplaceable(why)
	}
	if u.phase != Gathering {
		s.pass(u, Gathering)
		s.arm(AlarmPlacement)
	}
	if s.whole() {
		s.shortage.text = why
	}
	return why
}

func (s *State) unplaceable(why string) string {
	if s.closed() && s.roster.loss != "" {
		why = s.roster.loss + "; no other can come; " + why
	}
	r := Result{Code: codeOwn, Reason: "job failed: " + why, Cause: s.cause()}
	if s.roster.loss == "" {
		r.Ending = report.EndProgram // the request is for what is not there
	}
	return s.end(r)
}

// worthAsking says whether a plan can have become possible. Each question costs O(nodes): one for every join would be quadratic.
func (s *State) worthAsking() bool {
	r := s.spec.Request
	if len(s.roster.nodes) < s.shortage.enough {
		return false
	}
	return s.strict() || len(s.roster.nodes) >= r.MinNodes || !r.GPU || s.roster.gpus >= ranks(r, r.MinNodes)
}

// strict says that the job cannot be placed on fewer nodes than the request names.
func (s *State) strict() bool {
	r := s.spec.Request
	return r.Strategy != placement.Pack && r.Strategy != placement.Spread || allGPUs(r)
}

// complete says that more nodes would not make the plan better.
func (s *State) complete(p placement.Plan) bool {
	r := s.spec.Request
	if !allGPUs(r) && p.WorldSize() < ranks(r, r.MaxNodes) {
		return false
	}
	return r.Strategy == placement.Pack || len(p.Groups) >= r.MaxNodes
}

func allGPUs(r placement.Request) bool { return slices.Equal(r.PerNode, []int{placement.AllGPUs}) }

// ranks is the number of ranks on that many nodes.
func ranks(r placement.Request, nodes int) int {
	if len(r.PerNode) == 1 {
		return nodes * r.PerNode[0]
	}
	sum := 0
	for _, n := range r.PerNode[:min(nodes, len(r.PerNode))] {
		sum += n
	}
	return sum
}

// request asks that the nodes of the last attempt keep their ranks.
func (s *State) request() placement.Request {
	r := s.spec.Request
	if s.budget.attempts > 0 {
		r.Keep = make(map[string]int, len(s.plan.slots))
		for rank, sl := range s.plan.slots {
			r.Keep[sl.Node.Name] = rank
		}
	}
	return r
}

// list has the nodes that no group uses, in the order of their names so that it does not depend on a map.
func (s *State) list() []placement.Node {
	nodes := make([]placement.Node, 0, len(s.roster.spares))
	for name := range s.roster.spares {
		nodes = append(nodes, s.roster.nodes[name].Node)
	}
	slices.SortFunc(nodes, func(a, b placement.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// release takes all nodes out of their groups, between attempts of the whole. What was asked of them does not matter any more.
func (s *State) release() {
	s.master.question, s.master.ported = nil, false
	s.unask(0)
	for _, sl := range s.plan.slots {
		if n := s.roster.nodes[sl.Node.Name]; n != nil {
			s.seat(n, spare)
		}
	}
}

// adopt makes a plan the job's own and divides it into units.
func (s *State) adopt(p placement.Plan) {
	s.plan.slots, s.plan.vacant = make([]slot, len(p.Groups)), nil
	s.plan.roles = map[string]int{}
	for i, g := range p.Groups {
		role := g.Node.Labels[placement.RoleLabel]
		s.plan.slots[i] = slot{Group: g, role: role, roleFirst: s.plan.roles[role]}
		s.plan.roles[role] += len(g.Bundles)
		s.seat(s.roster.nodes[g.Node.Name], i)
	}
	s.timers.armed[AlarmLastCall] = 0
	s.shortage.enough, s.growth.partial = 0, !s.complete(p)
	s.progress.done, s.progress.pids = make([]bool, p.WorldSize()), make([]int, p.WorldSize())
	s.plan.world = World{WorldSize: p.WorldSize(), Nodes: len(p.Groups), Uniform: uniform(p), MaxRestarts: s.spec.MaxRestarts}
	if s.spec.Request.GPU && len(s.plan.slots) > 1 {
		s.plan.world.Network, s.plan.differing = s.agree()
	}
	switch s.spec.Restart {
	case RestartNode:
		s.progress.units = make([]unit, len(p.Groups))
		for i := range s.progress.units {
			s.progress.units[i] = unit{id: i, first: i, members: make([]member, 1)}
		}
	case RestartRank:
		s.progress.units = make([]unit, 0, p.WorldSize())
		for i, g := range p.Groups {
			for range g.Bundles {
				s.progress.units = append(s.progress.units, unit{id: len(s.progress.units), first: i, members: make([]member, 1)})
			}
		}
	default:
		s.progress.units[0].members = make([]member, len(p.Groups))
	}
	s.progress.open = len(s.progress.units)
	for i := range s.progress.units {
		s.pass(&s.progress.units[i], Preparing)
	}
}

// agree is on what the ranks use the network for as long as the job is not placed anew: a node that takes the place of another must
// do as those do that run.
func (s *State) agree() (agreed, differing string) {
	nodes := make([]placement.Node, len(s.plan.slots))
	for i, sl := range s.plan.slots {
		nodes[i] = sl.Node
	}
	return nccl.Agree(nodes)
}

func uniform(p placement.Plan) int {
	n := len(p.Groups[0].Bundles)
	for _, g := range p.Groups {
		if len(g.Bundles) != n {
			return 0
		}
	}
	return n
}

// exchange has a spare take the place of an excluded node on which nothing lives.
func (s *State) exchange(nodeRank int) string {
	old := s.plan.slots[nodeRank]
	if old.vacant || !s.Excludes(old.Node.Name) || s.liveAt(nodeRank) || s.rehome(nodeRank, s.fit(s.list())) != nil {
		return ""
	}
	return fmt.Sprintf("%s takes the place of %s", s.plan.slots[nodeRank].Node.Name, old.Node.Name)
}

// rehome gives a node rank of which nothing lives to one of the spares, the least that suffices: a larger one may have come for a larger rank.
func (s *State) rehome(nodeRank int, spares []placement.Node) error {
	return s.replace(nodeRank, s.snug(nodeRank, spares))
}

// replace gives a node rank of which nothing lives to one of the candidates, with the same ranks on it.
func (s *State) replace(nodeRank int, candidates []placement.Node) error {
	g, err := s.substitute(nodeRank, candidates)
	if err != nil {
		return err
	}
	s.unask(nodeRank)
	if nodeRank == 0 {
		s.master.question, s.master.ported = nil, false
	}
	if old := s.roster.nodes[s.plan.slots[nodeRank].Node.Name]; old != nil && old.slot == nodeRank {
		s.seat(old, spare)
	}
	was := s.plan.slots[nodeRank] // whose role the ranks go on with
	s.plan.slots[nodeRank], s.step.replaced = slot{Group: g}, true
	s.plan.slots[nodeRank].role, s.plan.slots[nodeRank].roleFirst = was.role, was.roleFirst
	s.plan.vacant = slices.DeleteFunc(s.plan.vacant, func(rank int) bool { return rank == nodeRank })
	s.seat(s.roster.nodes[g.Node.Name], nodeRank)
	s.admit()
	return nil
}

func (s *State) substitute(nodeRank int, candidates []placement.Node) (placement.Group, error) {
	old := s.plan.slots[nodeRank].Group
	r := s.spec.Request
	r.MinNodes, r.MaxNodes, r.PerNode, r.Strategy = 1, 1, []int{len(old.Bundles)}, placement.StrictPack
	r.Keep = map[string]int{old.Node.Name: 0}
	plan, err := placement.Solve(r, candidates)
	if err != nil {
		return placement.Group{}, err
	}
	g := plan.Groups[0]
	g.NodeRank = nodeRank
	for i := range g.Bundles {
		g.Bundles[i].Rank = old.Bundles[i].Rank
	}
	return g, nil
}

// snug are the spares with the least room that suffices for a node rank.
func (s *State) snug(nodeRank int, spares []placement.Node) []placement.Node {
	need, least := len(s.plan.slots[nodeRank].Bundles), math.MaxInt
	for _, n := range spares {
		if room := s.room(n); room >= need {
			least = min(least, room)
		}
	}
	return slices.DeleteFunc(spares, func(n placement.Node) bool { return s.room(n) != least })
}

// room is how many ranks a node has GPUs, CPUs and memory for, as far as that is known; math.MaxInt without a bound.
func (s *State) room(n placement.Node) int {
	r, room := s.spec.Request, math.MaxInt
	if r.GPU {
		room = 0
		for _, g := range n.GPUs {
			if g.HeldBy == "" {
				room++
			}
		}
	}
	if r.CPUs > 0 && n.CPUs != 0 {
		room = min(room, n.CPUs/r.CPUs)
	}
	if r.Memory > 0 && n.Memory != 0 {
		room = min(room, int(n.Memory/r.Memory))
	}
	return room
}

// gathering says that the job, or a part of it, waits for nodes.
func (s *State) gathering() bool {
	if s.whole() {
		return s.progress.units[0].phase == Gathering
	}
	return len(s.shortage.homeless) > 0
}

// wanting says what the job waits for while it gathers, and why the nodes that are there do not do.
func (s *State) wanting() string {
	if s.shortage.queued != "" {
		return s.shortage.queued
	}
	if s.whole() {
		return s.shortage.text
	}
	if len(s.shortage.homeless) == 0 {
		return ""
	}
	rank := s.progress.units[s.shortage.homeless[0]].first
	text := fmt.Sprintf("waiting for a node in the place of %s (node rank %d)", s.plan.slots[rank].Node.Name, rank)
	if spares := s.list(); len(spares) > 0 {
		if _, err := s.substitute(rank, spares); err != nil {
			text += "; " + err.Error()
		}
	}
	return text
}
