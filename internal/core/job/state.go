package job

import (
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// State is one job as it stands. One goroutine owns it.
type State struct {
	spec Spec
	// nodes are the agents that are there, by name; addrs are their addresses, and gpus is the number of their GPUs.
	nodes map[string]*node
	addrs map[netip.Addr]string
	gpus  int
	// spares are the nodes that no group uses. Reports ask for them while a node is missing, and must not cost O(nodes).
	spares map[string]bool

	// slots are the placement groups of the newest plan by node rank, and world what their ranks know of the whole. It is ported
	// when its master has a port; asked is the question for one that is out.
	slots []slot
	world World
	// roles are the ranks of each role.
	roles  map[string]int
	ported bool
	asked  *Prepare
	// unproven are the node ranks that have not said whether they reach that port, with the number of the question, and unreached
	// are those that do not reach it, with why. questions counts, and launched says that units have started with that port.
	unproven  map[int]int
	unreached map[int]string
	questions int
	launched  bool

	// units are all ranks in parts that restart on their own; until there is a first plan, unit 0 stands for the whole.
	units []unit
	// done says of each rank whether it exited 0 in the newest attempt of its unit.
	done []bool
	// pids are the process ids of the ranks, 0 for those that are not known, and meeting is what the newest [Met] says.
	pids    []int
	meeting string
	// open counts the units that have not succeeded, and live the pairs of unit and node that may have processes.
	open, live int

	// alarms has the sequence number of the newest alarm of each kind, 0 when it does not matter any more.
	alarms map[AlarmKind]int
	seq    int
	// homeless are the units whose node was lost, and that wait for one in its place while the others run.
	homeless []int
	// enough is the number of nodes from which on it is worth asking for a plan again, and waiting what is waited for.
	enough  int
	waiting string
	// queued is why a cluster has no nodes for the job, empty when it has given one since.
	queued string
	// vacant are the node ranks whose node was lost.
	vacant []int
	// differing is why the nodes have no fabric in common, until it was told.
	differing string
	// loss is the newest loss of a node in words.
	loss string

	// seen counts the nodes that ever joined.
	seen                        int
	attempts, restarts, cancels int
	// signal is what the job was told to stop with, see [Stop].
	signal int
	// streak are the restarts since the budget was last whole, and spent those of them that count against it. sick counts the units
	// that do not run since they failed.
	streak, spent, sick int
	// recurrence knows a failure again, and rules are the user's own of what one means, once they were needed. blamed counts the failures since the budget
	// was last whole by the node that is to blame, and excluded says why nodes are used only if others will not do.
	recurrence verdict.Recurrence
	// weighed counts the ranks whose failures were weighed and not yet decided.
	weighed  int
	rules    []verdict.Rule `snapshot:"-"`
	blamed   map[string]int
	excluded map[string]string
	// deaf are nodes that did not reach a master since all units ran, with the first that they did not reach.
	deaf map[string]string
	// departures are those whose time is not over, in the order in which they were told.
	departures []departure
	// expiry is how the job ends once as many pairs of unit and node are ready for that as live; nil before it was said that it will.
	expiry *Result
	ready  int
	// partial says that the job was placed on fewer nodes than its most, and ripe that it has run so for long enough.
	partial, ripe bool
	// fatal is the unit whose failure ends the job, or noUnit, and ending is why no restart follows.
	fatal  int
	ending string
	// result is set once the end is decided; what still lives then stops, and the job is finished when nothing does.
	result   *Result
	finished bool

	// actions, changes, judged, stale and replaced are what the newest step came to.
	actions []Action         `snapshot:"-"`
	changes []goodput.Change `snapshot:"-"`
	judged  verdict.Verdict  `snapshot:"-"`
	stale   bool             `snapshot:"-"`
	// replaced is for [State.Replaced].
	replaced bool `snapshot:"-"`
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
		spec:   spec,
		nodes:  map[string]*node{},
		addrs:  map[netip.Addr]string{},
		spares: map[string]bool{},
		alarms: map[AlarmKind]int{},

		unproven: map[int]int{}, unreached: map[int]string{},
		blamed: map[string]int{}, excluded: map[string]string{}, deaf: map[string]string{},

		units: []unit{{phase: Gathering}}, fatal: noUnit,
	}
	s.waiting = s.shortfall()
	return s
}

// ownRules are the user's own.
func (s *State) ownRules() []verdict.Rule {
	if s.rules == nil && s.spec.Rules != "" {
		s.rules, _ = verdict.Parse("--failure-rules", s.spec.Rules) // who submits the job has checked them
	}
	return s.rules
}

// gang says that all ranks are one unit.
func (s *State) gang() bool { return s.spec.Restart != RestartNode && s.spec.Restart != RestartRank }

// whole says that the next placement is of all nodes at once: of a gang always, of other units before their first start.
func (s *State) whole() bool { return s.gang() || s.attempts == 0 }

// closed says that no node will join any more.
func (s *State) closed() bool {
	return s.spec.FixedPool && s.seen >= s.spec.Pool && (s.attempts > 0 || s.loss != "")
}

// unitsAt are the units that have ranks on a node rank.
func (s *State) unitsAt(nodeRank int) []unit {
	switch {
	case len(s.units) == 1:
		return s.units
	case s.spec.Restart == RestartNode:
		return s.units[nodeRank : nodeRank+1]
	}
	b := s.slots[nodeRank].Bundles
	return s.units[b[0].Rank : b[0].Rank+len(b)]
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
		s.spares[n.Name] = true
	} else {
		delete(s.spares, n.Name)
	}
}

// find says whom a report is about. It is false for a report from a node that was lost, of another attempt, or of a node that
// has said stopped: such reports are stale.
func (s *State) find(name string, id, attempt int) (*unit, *member, *slot, bool) {
	n := s.nodes[name]
	if n == nil || n.slot == spare || id < 0 || id >= len(s.units) {
		return nil, nil, nil, false
	}
	u := &s.units[id]
	m := u.member(n.slot)
	if m == nil || !m.live || u.attempt != attempt {
		return nil, nil, nil, false
	}
	return u, m, &s.slots[n.slot], true
}

// share is the placement group of a unit on one node rank.
func (s *State) share(u *unit, nodeRank int) placement.Group {
	g := s.slots[nodeRank].Group
	if s.spec.Restart == RestartRank {
		i := u.id - g.Bundles[0].Rank
		g.Bundles = g.Bundles[i : i+1 : i+1]
	}
	return g
}

func (s *State) do(a Action) { s.actions = append(s.actions, a) }

// arm asks for a timer; answers to older ones of its kind are stale from now on.
func (s *State) arm(kind AlarmKind) { s.alarms[kind] = s.alarm(kind, 0) }

// alarm asks for a timer, and returns its number.
func (s *State) alarm(kind AlarmKind, after time.Duration) int {
	s.seq++
	s.do(Alarm{Kind: kind, Seq: s.seq, For: after})
	return s.seq
}

// settled counts a member that has no process any more.
func (s *State) settled(u *unit, m *member) {
	u.moves(m)
	s.unready(u, m)
	m.live = false
	u.live--
	s.live--
}
