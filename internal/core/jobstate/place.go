package jobstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
)

// plan says where the ranks are: the newest placement, by node rank.
type plan struct {
	slots []slot
	// vacant are the node ranks whose node is gone.
	vacant []int
	// world has the facts about the whole job that ranks know. roles counts the ranks of each role.
	world job.World
	roles map[string]int
	// differing is why the nodes have no fabric in common. It is empty once the job has reported
	// it.
	differing string
	growth    growth
}

// slot is the placement group of one node rank.
type slot struct {
	placement.Group
	// vacant says that the slot's node is gone.
	vacant bool
	// role is the role of the node's ranks, and roleFirst the position of its first rank in the
	// role.
	role      string
	roleFirst int
}

// adopt begins a placement.
func (p *plan) adopt(chosen placement.Plan, maxRestarts int) {
	p.slots, p.vacant, p.roles = make([]slot, len(chosen.Groups)), nil, map[string]int{}
	for i, g := range chosen.Groups {
		role := g.Node.Labels[placement.RoleLabel]
		p.slots[i] = slot{Group: g, role: role, roleFirst: p.roles[role]}
		p.roles[role] += len(g.Bundles)
	}
	p.world = job.World{
		WorldSize: chosen.WorldSize(), Nodes: len(chosen.Groups), Uniform: uniform(chosen), MaxRestarts: maxRestarts,
	}
}

// uniform is the number of ranks on each node, or 0 if nodes have different numbers.
func uniform(p placement.Plan) int {
	n := len(p.Groups[0].Bundles)
	for _, g := range p.Groups {
		if len(g.Bundles) != n {
			return 0
		}
	}
	return n
}

// agree notes which fabric the ranks use until the job is placed anew. A node that takes another
// node's place must use the same fabric.
func (p *plan) agree() {
	nodes := make([]placement.Node, len(p.slots))
	for i, sl := range p.slots {
		nodes[i] = sl.Node
	}
	p.world.Network, p.differing = nccl.Agree(nodes)
}

// tellDiffering returns, only once, why the nodes have no fabric in common.
func (p *plan) tellDiffering() string {
	text := p.differing
	p.differing = ""
	return text
}

func (p *plan) vacate(nodeRank int) {
	p.slots[nodeRank].vacant = true
	p.vacant = append(p.vacant, nodeRank)
}

// fill gives a node rank another node. The ranks keep their role.
func (p *plan) fill(nodeRank int, g placement.Group) {
	sl := &p.slots[nodeRank]
	sl.Group, sl.vacant = g, false
	p.vacant = slices.DeleteFunc(p.vacant, func(rank int) bool { return rank == nodeRank })
}

// worldAt has the facts about the whole job that the ranks of a unit on a node rank know.
func (s *State) worldAt(u *unit, nodeRank int) job.World {
	p, m := &s.plan, s.masterOf(u)
	w, sl := p.world, p.slots[nodeRank]
	w.MasterAddr, w.MasterPort = m.addr, m.port
	w.LocalSize = len(sl.Bundles)
	w.RoleSize, w.RoleFirst = p.roles[sl.role], sl.roleFirst
	if s.grouped() {
		w.Groups, w.Group = s.spec.Groups, u.id
		w.WorldSize, w.Nodes, w.Uniform = s.perUnit(), len(u.members), s.uniform(u)
		w.FirstRank, w.FirstNode = u.id*w.WorldSize, u.first
		w.RoleSize, w.RoleFirst = w.WorldSize, s.groupAt(u, nodeRank).Bundles[0].Rank-w.FirstRank
	}
	if s.spec.Request.GPU {
		w.GPUs = make([]placement.GPU, len(sl.Bundles))
		for i, b := range sl.Bundles {
			w.GPUs[i] = *b.GPU
		}
	}
	return w
}

// uniform is the number of ranks of a unit on each of its nodes, or 0 if its nodes have different
// numbers.
func (s *State) uniform(u *unit) int {
	n := len(s.groupAt(u, u.first).Bundles)
	for i := range u.members {
		if len(s.groupAt(u, u.first+i).Bundles) != n {
			return 0
		}
	}
	return n
}

// vacancy returns the first node rank of a unit whose node is gone.
func (s *State) vacancy(u *unit) (nodeRank int, vacant bool) {
	for i := range u.members {
		if s.plan.slots[u.first+i].vacant {
			return u.first + i, true
		}
	}
	return 0, false
}

// place finds nodes for a unit that is to start, and waits for them if there are too few.
func (s *State) place(u *unit) string {
	if s.placesAll() {
		return s.placeAll(u.grows())
	}
	text := ""
	if s.leaves(u) {
		s.pass(u, job.Preparing)
		return s.label(u) + ": " + s.leaveWait(u)
	}
	for i := range u.members {
		nodeRank, spares := u.first+i, s.roster.list()
		if !s.plan.slots[nodeRank].vacant {
			text = words.Also(text, s.exchange(nodeRank))
		} else if s.rehome(nodeRank, s.suspects.fit(spares)) != nil && s.rehome(nodeRank, spares) != nil {
			s.shortage.addHomeless(u.id)
			return s.gather(u, s.wanting())
		}
	}
	if home := s.masterOf(u).home; s.suspects.excluded[s.plan.slots[home].Node.Name].code == excludedUnreachable {
		text = words.Also(s.exchange(home), text)
	}
	return words.Also(text, words.Also(s.reused(u), s.prepare(u)))
}

// placeAll plans the whole job anew. Surviving nodes keep their ranks. If the job can use more
// nodes, placeAll waits for them until the last call, or until no further node can join.
func (s *State) placeAll(lastCall bool) string {
	u := &s.progress.units[0]
	if u.phase != job.Gathering {
		s.release()
	}
	if !s.worthAsking() {
		return s.gather(u, s.shortfall())
	}
	chosen, err := s.solve(s.request())
	if err != nil {
		return s.infeasible(u, err)
	}
	if !lastCall && !s.closed() && !s.complete(chosen) {
		s.shortage.need(max(len(s.roster.nodes)+1, s.spec.Request.MaxNodes))
		if !s.timers.runs(job.AlarmLastCall) {
			s.arm(job.AlarmLastCall)
		}
		return s.gather(u, s.shortfall())
	}
	if s.grouped() && (chosen.WorldSize()%s.spec.Groups != 0 || chosen.WorldSize() == 0) {
		return s.unplaceable(fmt.Sprintf("%s do not divide into %d replica groups", words.Count(chosen.WorldSize(), "rank"), s.spec.Groups))
	}
	s.adopt(chosen)
	u = &s.progress.units[0]
	text := words.Also(s.reused(u), s.prepare(u))
	for i := 1; i < len(s.masters.of); i++ { // each group has its own master
		s.prepare(&s.progress.units[i])
	}
	return text
}

// infeasible waits for the missing nodes, or ends the job when they can never join.
func (s *State) infeasible(u *unit, err error) string {
	e, ok := errors.AsType[*placement.InfeasibleError](err)
	if !ok || s.spec.FixedPool && !e.Ever {
		return s.unplaceable(err.Error())
	}
	s.timers.clear(job.AlarmLastCall)
	if s.strict() {
		s.shortage.need(len(s.roster.nodes) + e.Missing)
	}
	switch {
	case e.Missing == 0:
		return s.gather(u, e.Error())
	case len(e.Nodes) > 0:
		return s.gather(u, s.shortfall()+"; "+e.Error())
	}
	return s.gather(u, s.shortfall())
}

// gather makes a unit wait for nodes, for as long as the placement limit allows. The limit starts
// anew when another unit begins to wait.
func (s *State) gather(u *unit, why string) string {
	if s.closed() {
		if s.expendable(u) {
			return s.abandon(u, why)
		}
		return s.unplaceable(why)
	}
	if u.phase != job.Gathering {
		s.pass(u, job.Gathering)
		s.arm(job.AlarmPlacement)
	}
	if s.placesAll() {
		s.shortage.waitFor(why)
	}
	return why
}

func (s *State) unplaceable(why string) string {
	r := report.Result{Code: codeOwn, Cause: cmp.Or(s.cause(), s.step.loss)}
	if s.roster.lost {
		if s.closed() {
			why = s.roster.loss + "; no other can come; " + why
		}
	} else {
		r.Ending = report.EndProgram // the job asks for GPUs or nodes that do not exist
	}
	r.Reason = "job failed: " + why
	return s.end(r)
}

// worthAsking reports whether a plan may have become possible. Each try costs O(nodes), so a try
// for every node that joins would be quadratic.
func (s *State) worthAsking() bool {
	r, nodes := s.spec.Request, len(s.roster.nodes)
	if nodes < s.shortage.enough {
		return false
	}
	return s.strict() || nodes >= r.MinNodes || !r.GPU || r.Fits(s.roster.gpus) >= ranks(r, r.MinNodes)
}

// strict reports whether the job needs as many nodes as the request says. Otherwise fewer, larger
// nodes may suffice.
func (s *State) strict() bool {
	r := s.spec.Request
	return r.Strategy != placement.Pack && r.Strategy != placement.Spread || allGPUs(r)
}

// complete reports whether the plan would be no better with more nodes.
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

// solve plans without the excluded nodes, or with them if there is no other plan.
func (s *State) solve(r placement.Request) (placement.Plan, error) {
	all := s.roster.list()
	fit := s.suspects.fit(all)
	if len(fit) < len(all) {
		if chosen, err := placement.Solve(r, fit); err == nil {
			return chosen, nil
		}
	}
	if r, moved := s.moveMaster(r); moved {
		if chosen, err := placement.Solve(r, all); err == nil {
			return chosen, nil
		}
	}
	return placement.Solve(r, all)
}

// release takes all nodes out of their slots and drops the questions to them, between attempts of
// the whole job.
func (s *State) release() {
	for i := range s.masters.of {
		s.masters.of[i].renew()
	}
	for _, sl := range s.plan.slots {
		if s.Has(sl.Node.Name) {
			s.roster.assign(sl.Node.Name, spare)
		}
	}
}

// adopt makes a placement the job's plan, and divides its ranks into units.
func (s *State) adopt(chosen placement.Plan) {
	s.plan.adopt(chosen, s.spec.MaxRestarts)
	for i, g := range chosen.Groups {
		s.roster.assign(g.Node.Name, i)
	}
	s.timers.clear(job.AlarmLastCall)
	s.shortage.need(0)
	s.plan.growth.adopt(!s.complete(chosen))
	if s.spec.Request.GPU && len(chosen.Groups) > 1 {
		s.plan.agree()
	}
	s.progress.adopt(chosen, s.spec)
	s.masters.adopt(s.progress.units, s.grouped())
	for i := range s.progress.units {
		s.pass(&s.progress.units[i], job.Preparing)
	}
}

// shortage describes the nodes that a waiting job lacks.
type shortage struct {
	// homeless are the units that lost their node and wait for another one while other units run.
	homeless []int
	// enough is the least number of nodes with which a new plan may be possible.
	enough int
	// text says what the whole job waits for. queued says why the cluster has no nodes for the job;
	// it is empty once the cluster has given the job a node.
	text, queued string
}

func (l *shortage) need(nodes int)          { l.enough = nodes }
func (l *shortage) waitFor(text string)     { l.text = text }
func (l *shortage) queue(why string)        { l.queued = why }
func (l *shortage) addHomeless(unit int)    { l.homeless = append(l.homeless, unit) }
func (l *shortage) setHomeless(units []int) { l.homeless = units }

// gathering reports whether the job, or a part of it, waits for nodes.
func (s *State) gathering() bool {
	if s.placesAll() {
		return s.progress.units[0].phase == job.Gathering
	}
	return len(s.shortage.homeless) > 0
}
