package job

import (
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// State is one job as it stands. One goroutine owns it. Only the methods of a part change the fields of that part.
type State struct {
	spec       Spec
	roster     roster
	plan       plan
	progress   progress
	master     master
	shortage   shortage
	budget     budget
	verdicts   verdicts
	suspects   suspects
	departures departures
	growth     growth
	timers     timers
	ending     ending
	step       step `snapshot:"-"`
}

// roster has the nodes that are there.
type roster struct {
	nodes map[string]*node
	// addrs has the node at each address.
	addrs map[netip.Addr]string
	gpus  int
	// spares are the nodes that no group uses. Reports ask for them while a node is missing, and must not cost O(nodes).
	spares map[string]bool
	// joined counts the nodes that ever joined.
	joined int
	// loss is the newest loss of a node in words.
	loss string
}

// plan is where the ranks are: the newest placement, by node rank.
type plan struct {
	slots []slot
	// vacant are the node ranks whose node was lost.
	vacant []int
	// world is what ranks know of the whole, and roles are the ranks of each role.
	world World
	roles map[string]int
	// differing is why the nodes have no fabric in common, until it was told.
	differing string
}

// master is the port of the node with rank 0, and which nodes reach it.
type master struct {
	// question is the one for a port that is out. Once it is answered, ported is true, until the master changes.
	question *Prepare
	ported   bool
	// launched says that units have started with that port.
	launched bool
	// pending are the node ranks that have not said whether they reach the port, with the number of the question; unreached
	// are those that do not reach it, with why.
	pending   map[int]int
	unreached map[int]string
	questions int
	// missed are the nodes that did not reach a master since all units ran, with the first that they did not reach.
	missed map[string]string
}

// progress is how far the units and their ranks have come.
type progress struct {
	// units are all ranks in parts that restart on their own; until there is a first plan, unit 0 stands for the whole.
	units []unit
	// done says of each rank whether it exited 0 in the newest attempt of its unit. pids are their process ids, 0 for unknown ones.
	done []bool
	pids []int
	// meeting is what the newest [Met] says.
	meeting string
	// open counts the units that have not succeeded, live the pairs of unit and node that may have processes, and ready those of
	// them that are ready for the end of the job.
	open, live, ready int
}

// shortage is what a job does without that lacks nodes.
type shortage struct {
	// homeless are the units whose node was lost, and that wait for one in its place while the others run.
	homeless []int
	// enough is the number of nodes from which on a new plan may be possible.
	enough int
	// text is what the whole waits for. queued is why a cluster has no nodes for the job, empty when it has given one since.
	text, queued string
}

// budget counts attempts and failures.
type budget struct {
	attempts, restarts int
	// streak are the restarts since the budget was last whole, and spent those of them that count against it.
	streak, spent int
	// failing counts the units that do not run since they failed.
	failing int
}

// verdicts is what failures mean.
type verdicts struct {
	// recurrence knows a failure again.
	recurrence verdict.Recurrence
	// weighed counts the ranks whose failures were weighed and not yet decided.
	weighed int
	// rules are the user's own, once they were needed.
	rules []verdict.Rule `snapshot:"-"`
}

// suspects are the nodes that are to blame for failures.
type suspects struct {
	// blamed counts the failures of each node since the budget was last whole. excluded says why nodes are used only if others will not do.
	blamed   map[string]int
	excluded map[string]string
}

// departures are the ends that were announced to ranks.
type departures struct {
	// announced are those whose time is not over, in the order in which they were told.
	announced []departure
	// end is how the job ends once all that lives is ready; nil before it was said that it will.
	end *Result
}

// growth is the time after which a job that was placed on fewer nodes than its most asks for more.
type growth struct {
	// partial says that it was placed so, and due that it has run for long enough.
	partial, due bool
}

// timers are the alarms that are out.
type timers struct {
	// armed has the sequence number of the newest alarm of each kind, 0 when it does not matter any more.
	armed map[AlarmKind]int
	seq   int
}

// ending is how the job ends.
type ending struct {
	cancels int
	// signal is what the job was told to stop with, see [Stop].
	signal int
	// fatal is the unit whose failure ends the job, or noUnit, and why no restart follows.
	fatal int
	why   string
	// result is set once the end is decided; what still lives then stops, and the job is finished when nothing does.
	result   *Result
	finished bool
}

// step is what the newest event came to.
type step struct {
	actions []Action
	changes []goodput.Change
	judged  verdict.Verdict
	stale   bool
	// replaced says that a spare took the place of a node.
	replaced bool
}

// node is a machine that is there; slot is its node rank, or spare, and ran says that ranks have started there. leaves is that it will be
// gone, as soon as was ever said; nil if it will not.
type node struct {
	placement.Node
	slot   int
	ran    bool
	leaves *departure
}

const (
	spare  = -1
	noUnit = -1
)

// slot is the placement group of one node rank; vacant says that its node was lost, and asked that it was asked to reach the port.
type slot struct {
	placement.Group
	vacant, asked bool
	// role is that of the plan's node, and roleFirst the position of its first rank among those of the role.
	role      string
	roleFirst int
}

// unit is a set of ranks that restart together.
type unit struct {
	id, attempt int
	phase       Phase
	// first is the node rank of members[0].
	first   int
	members []member
	// left counts the ranks that have not exited 0, live the members that may have processes, starting those not yet started.
	left, live, starting int
	// imports is what fork servers have done for the newest attempt.
	imports Imports
	// still counts the live members whose newest report is that they stand still, idle the ranks of which that was said twice in a row, and
	// split says that people know that these are most, and others go on.
	still, idle int
	split       bool
	// told says that all live members have been ordered to stop.
	told bool
	// cause is why the newest attempt failed, or will not be made. sick says that the unit has not run since it failed.
	cause *fault
	sick  bool
	// early is the first rank that exited 0 in the newest attempt while others ran, nil for none.
	early *early
	// notice is the departure with the least time of which its ranks were told, nil if they were told of none, and ready counts the live
	// members whose ranks are ready for it.
	notice *departure
	ready  int
}

// member is a unit's share of one node. It is live from the order to start until the node says stopped or is lost.
type member struct {
	live, started, ready bool
	left                 int
	// stalled is its newest report that its ranks stand still; nil while they move.
	stalled *Stalled
	idle    int
}

// Phase is where a job, or a unit of it, stands.
type Phase string

// The phases, in the order in which an attempt goes through them.
const (
	Gathering Phase = "gathering"
	Preparing Phase = "preparing"
	Running   Phase = "running"
	Stopping  Phase = "stopping"
	Backoff   Phase = "backoff"
	Finished  Phase = "finished"
)

// New returns a job that waits for nodes. Its first step arms the [AlarmPlacement].
func New(spec Spec) *State {
	s := &State{
		spec:     spec,
		roster:   roster{nodes: map[string]*node{}, addrs: map[netip.Addr]string{}, spares: map[string]bool{}},
		progress: progress{units: []unit{{phase: Gathering}}},
		master:   master{pending: map[int]int{}, unreached: map[int]string{}, missed: map[string]string{}},
		suspects: suspects{blamed: map[string]int{}, excluded: map[string]string{}},
		timers:   timers{armed: map[AlarmKind]int{}},
		ending:   ending{fatal: noUnit},
	}
	s.shortage.text = s.shortfall()
	return s
}

// ownRules are the user's own.
func (s *State) ownRules() []verdict.Rule {
	if s.verdicts.rules == nil && s.spec.Rules != "" {
		s.verdicts.rules, _ = verdict.Parse("--failure-rules", s.spec.Rules) // who submits the job has checked them
	}
	return s.verdicts.rules
}

// gang says that all ranks are one unit.
func (s *State) gang() bool { return s.spec.Restart != RestartNode && s.spec.Restart != RestartRank }

// whole says that the next placement is of all nodes at once: of a gang always, of other units before their first start.
func (s *State) whole() bool { return s.gang() || s.budget.attempts == 0 }

// closed says that no node will join any more.
func (s *State) closed() bool {
	return s.spec.FixedPool && s.roster.joined >= s.spec.Pool && (s.budget.attempts > 0 || s.roster.loss != "")
}

// unitsAt are the units that have ranks on a node rank.
func (s *State) unitsAt(nodeRank int) []unit {
	switch {
	case len(s.progress.units) == 1:
		return s.progress.units
	case s.spec.Restart == RestartNode:
		return s.progress.units[nodeRank : nodeRank+1]
	}
	b := s.plan.slots[nodeRank].Bundles
	return s.progress.units[b[0].Rank : b[0].Rank+len(b)]
}

// member finds the member of a unit on a node rank.
func (u *unit) member(nodeRank int) *member {
	if i := nodeRank - u.first; i >= 0 && i < len(u.members) {
		return &u.members[i]
	}
	return nil
}

// seat gives a node a node rank, or none.
func (s *State) seat(n *node, slot int) {
	n.slot = slot
	if slot == spare {
		s.roster.spares[n.Name] = true
	} else {
		delete(s.roster.spares, n.Name)
	}
}

// find says whom a report is about. It is false for a report from a node that was lost, of another attempt, or of a node that
// has said stopped: such reports are stale.
func (s *State) find(name string, id, attempt int) (*unit, *member, *slot, bool) {
	n := s.roster.nodes[name]
	if n == nil || n.slot == spare || id < 0 || id >= len(s.progress.units) {
		return nil, nil, nil, false
	}
	u := &s.progress.units[id]
	m := u.member(n.slot)
	if m == nil || !m.live || u.attempt != attempt {
		return nil, nil, nil, false
	}
	return u, m, &s.plan.slots[n.slot], true
}

// share is the placement group of a unit on one node rank.
func (s *State) share(u *unit, nodeRank int) placement.Group {
	g := s.plan.slots[nodeRank].Group
	if s.spec.Restart == RestartRank {
		i := u.id - g.Bundles[0].Rank
		g.Bundles = g.Bundles[i : i+1 : i+1]
	}
	return g
}

func (s *State) do(a Action) { s.step.actions = append(s.step.actions, a) }

// arm asks for a timer; answers to older ones of its kind are stale from now on.
func (s *State) arm(kind AlarmKind) { s.timers.armed[kind] = s.alarm(kind, 0) }

// alarm asks for a timer, and returns its number.
func (s *State) alarm(kind AlarmKind, after time.Duration) int {
	s.timers.seq++
	s.do(Alarm{Kind: kind, Seq: s.timers.seq, For: after})
	return s.timers.seq
}

// settled counts a member that has no process any more.
func (s *State) settled(u *unit, m *member) {
	u.moves(m)
	s.unready(u, m)
	m.live = false
	u.live--
	s.progress.live--
}
