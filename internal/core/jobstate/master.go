package jobstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// masters are the masters of the units: one for each replica group, or one for all units.
type masters struct {
	of []master
	// questions counts all the times that a node was asked whether it reaches a port.
	questions int
}

// master has the port on the node with rank 0, and knows which nodes reach the port.
type master struct {
	// home is the node rank of rank 0. addr, as text, and port are where the master listens.
	home int
	addr string
	port int
	// question is the unanswered question to the master for a port, or nil. ported says that it was
	// answered and that no other node has become the master since.
	question *job.Prepare
	ported   bool
	// launched says that units have started with this port.
	launched bool
	// asked are the node ranks that were asked whether they reach the port. pending has the numbers
	// of unanswered questions. unreached has the errors of nodes that do not reach the port.
	asked     map[int]bool
	pending   map[int]int
	unreached map[int]string
	// missed has the nodes that have not reached a master since all units last ran. Each has the
	// first master that the node did not reach.
	missed map[string]string
}

func newMasters(n int) masters {
	all := masters{of: make([]master, n)}
	for i := range all.of {
		all.of[i] = master{asked: map[int]bool{}, pending: map[int]int{}, unreached: map[int]string{}, missed: map[string]string{}}
	}
	return all
}

// adopt begins a plan: no node has been asked.
func (ms *masters) adopt(units []unit, grouped bool) {
	if !grouped {
		ms.of[0].adopt()
		return
	}
	ms.of = newMasters(len(units)).of
	for i := range ms.of {
		ms.of[i].home = units[i].first
	}
}

// at reports whether a master is at a node rank.
func (ms *masters) at(nodeRank int) bool {
	return slices.ContainsFunc(ms.of, func(m master) bool { return m.home == nodeRank })
}

func (ms *masters) forgive(node string) {
	for i := range ms.of {
		delete(ms.of[i].missed, node)
	}
}

// masterOf is the master of a unit.
func (s *State) masterOf(u *unit) *master {
	if s.grouped() && u.id < len(s.masters.of) {
		return &s.masters.of[u.id]
	}
	return &s.masters.of[0]
}

func (m *master) ask(p job.Prepare) { m.question = &p }

// askedFor reports whether the unanswered question for a port went to a node.
func (m *master) askedFor(node string) bool { return m.question != nil && m.question.Node == node }

// asksFor reports whether a report answers the question.
func (m *master) asksFor(ev job.Prepared) bool {
	q := m.question
	return q != nil && q.Node == ev.Node && q.Unit == ev.Unit && q.Attempt == ev.Attempt
}

func (m *master) dropQuestion() { m.question = nil }

// openPort notes a new port, which no node has reached yet. The master need not prove that it
// reaches its own port.
func (m *master) openPort(addr string, port int) {
	m.ported, m.launched, m.addr, m.port = true, false, addr, port
	m.adopt()
	m.asked[m.home] = true
}

func (m *master) endpoint() string { return words.Endpoint(m.addr, m.port) }

// renew forgets the port and all questions about it.
func (m *master) renew() {
	m.dropQuestion()
	m.closePort()
	m.dropAnswers(m.home)
	m.adopt()
}

// drop forgets the questions to a node rank, since the node rank gets another node.
func (m *master) drop(nodeRank int) {
	m.dropAnswers(nodeRank)
	delete(m.asked, nodeRank)
	if nodeRank == m.home {
		m.dropQuestion()
		m.closePort()
	}
}

func (m *master) closePort() { m.ported = false }
func (m *master) launch()    { m.launched = true }

// adopt begins a plan: none of its nodes has been asked.
func (m *master) adopt() { clear(m.asked) }

// askReach notes that a node rank is asked whether it reaches the port of a master.
func (ms *masters) askReach(m *master, nodeRank int) {
	ms.questions++
	m.asked[nodeRank], m.pending[nodeRank] = true, ms.questions
}

// answer records the answer of a node rank.
func (m *master) answer(nodeRank int, ev job.Reached) {
	delete(m.pending, nodeRank)
	if ev.Err != "" && ev.Unable.OK() {
		m.unreached[nodeRank] = ev.Err
	}
}

// dropAnswers forgets the answer of a node rank. If this is the master's node rank, it forgets all
// answers.
func (m *master) dropAnswers(nodeRank int) {
	delete(m.pending, nodeRank)
	delete(m.unreached, nodeRank)
	if nodeRank == m.home {
		clear(m.pending)
		clear(m.unreached)
	}
}

// retry makes the job ask again all node ranks that did not reach the port.
func (m *master) retry() {
	for rank := range m.unreached {
		delete(m.asked, rank)
	}
	clear(m.unreached)
}

// miss notes the first master that a node did not reach.
func (m *master) miss(node, master string) {
	if m.missed[node] == "" {
		m.missed[node] = master
	}
}

func (m *master) forgiveAll() { clear(m.missed) }

// prepared takes the master's port, or ends the job if the master has no port.
func (s *State) prepared(ev job.Prepared) string {
	i := slices.IndexFunc(s.masters.of, func(m master) bool { return m.asksFor(ev) })
	if i < 0 {
		return s.step.ignore()
	}
	m := &s.masters.of[i]
	m.dropQuestion()
	if !ev.Unable.OK() {
		return s.unable(&s.progress.units[ev.Unit], m.home, job.Exited{Attempt: ev.Attempt, Exit: ev.Unable, At: ev.At})
	}
	if ev.Port == 0 {
		why := ev.Node + " has no port for the master: " + ev.Err
		f := report.Failure{Node: ev.Node, Rank: -1, Attempt: ev.Attempt, At: ev.At, Why: why}
		if u := &s.progress.units[ev.Unit]; s.expendable(u) {
			return s.abandon(u, f.Why)
		}
		return s.end(report.Result{Code: codeOwn, Reason: "job failed: " + f.Why, Cause: &f})
	}
	m.openPort(s.plan.slots[m.home].Node.Addr.String(), ev.Port)
	for i := range s.progress.units {
		if u := &s.progress.units[i]; s.masterOf(u) == m && s.readyToStart(u) {
			s.reach(u)
		}
	}
	if text, acted := s.launch(m); acted {
		return text
	}
	return s.portWait(&s.progress.units[ev.Unit])
}

// unable ends the job because a node cannot start its ranks, so that no other node starts ranks in
// vain. first says how the node's first rank would end.
func (s *State) unable(u *unit, nodeRank int, first job.Exited) string {
	g := s.groupAt(u, nodeRank)
	first.Node, first.Rank = g.Node.Name, g.Bundles[0].Rank
	f := s.fault(first.Failure(g.Bundles[0].GPU)).Failure
	if s.expendable(u) {
		return s.abandon(u, f.Why)
	}
	why := "job failed: " + words.Also(f.Why, "a restart would not help")
	return s.end(report.Result{Code: code(f), Ending: report.EndProgram, Reason: why, Cause: &f})
}

// reach asks each node of a unit once whether it reaches the master's port. The master's node may
// be gone once its own ranks are done. reach then asks no node.
func (s *State) reach(u *unit) {
	m := s.masterOf(u)
	for i := range u.members {
		if rank := u.first + i; !m.asked[rank] && !s.plan.slots[m.home].vacant {
			s.masters.askReach(m, rank)
			s.orderReach(m, rank)
		}
	}
}

func (s *State) orderReach(m *master, nodeRank int) {
	sl := s.plan.slots[nodeRank]
	reach := job.Reach{
		Node: sl.Node.Name, Seq: m.pending[nodeRank], Addr: m.addr, Port: m.port, Late: m.launched, Ranks: len(sl.Bundles),
	}
	if s.grouped() {
		u := slices.IndexFunc(s.progress.units, func(u unit) bool { return s.masterOf(&u) == m })
		reach.Unit, reach.Ranks = u, len(s.groupAt(&s.progress.units[u], nodeRank).Bundles)
	}
	s.step.do(reach)
}

func (s *State) reached(ev job.Reached) string {
	n := s.roster.nodes[ev.Node]
	if n == nil || ev.Seq == 0 {
		return s.step.ignore()
	}
	i := slices.IndexFunc(s.masters.of, func(m master) bool { return m.pending[n.nodeRank] == ev.Seq })
	if i < 0 {
		return s.step.ignore()
	}
	m := &s.masters.of[i]
	m.answer(n.nodeRank, ev)
	if !ev.Unable.OK() {
		u := &s.unitsAt(n.nodeRank)[0]
		if s.grouped() {
			u = &s.progress.units[i]
		}
		return s.unable(u, n.nodeRank, job.Exited{Attempt: u.attempt, Exit: ev.Unable, At: ev.At})
	}
	text, _ := s.launch(m)
	return text
}

// launch starts the units that wait only for the port, once all nodes that were asked have
// answered. It reports whether it started or ended anything.
func (s *State) launch(m *master) (text string, acted bool) {
	if s.decided() || s.departures.end != nil || !m.ported || len(m.pending) > 0 {
		return "", false
	}
	if len(m.unreached) > 0 {
		if text, acted = s.masterUnreachable(m); s.decided() {
			return text, true
		}
	}
	var started []*unit
	for i := range s.progress.units {
		if u := &s.progress.units[i]; s.masterOf(u) == m && s.readyToStart(u) {
			s.start(u)
			started = append(started, u)
		}
	}
	if len(started) == 0 {
		return text, acted
	}
	return words.Also(text, s.starting(started...)), true
}

// readyToStart reports whether a unit waits only for the master's port.
func (s *State) readyToStart(u *unit) bool { return u.phase == job.Preparing && !s.leaves(u) }

// masterUnreachable decides what follows when nodes do not reach the master. Before the first
// attempt has started, the network or an address is wrong, and a person must correct it, so the job
// ends. Later, it counts as the failure of a node.
func (s *State) masterUnreachable(m *master) (text string, acted bool) {
	ranks := slices.Sorted(maps.Keys(m.unreached))
	why := s.notReached(m, ranks)
	if s.budget.attempts == 0 {
		f := report.Failure{Node: s.plan.slots[ranks[0]].Node.Name, Rank: -1, Why: why, Verdict: verdict.Unreachable}
		return s.end(report.Result{Code: codeOwn, Reason: "job failed: " + words.Also(why, verdict.Unreachable.Remedy), Cause: &f}), true
	}
	blamed := s.blameFor(m, ranks)
	m.retry()
	units := s.stranded(m, blamed)
	if len(units) == 0 { // the nodes of all these units leave
		return "", false
	}
	f := &fault{
		Failure: report.Failure{Node: blamed[0], Rank: -1, Attempt: units[0].attempt, Why: why, Verdict: verdict.Unreachable},
		others:  blamed[1:],
	}
	return s.fail(f, units...), true
}

// blameFor returns the nodes that are to blame when some nodes do not reach the master. If more
// nodes count against the master than reach it, the master is to blame. Otherwise the nodes that do
// not reach it are to blame. A node counts against the master if this master is the first that the
// node has not reached since all units last ran. The master's own node counts as a node that
// reaches it only if the master has proven itself.
func (s *State) blameFor(m *master, ranks []int) (blamed []string) {
	master, against, reaching := s.plan.slots[m.home].Node.Name, 0, 0
	for _, rank := range ranks {
		name := s.plan.slots[rank].Node.Name
		blamed = append(blamed, name)
		m.miss(name, master)
	}
	for _, missed := range m.missed {
		if missed == master {
			against++
		}
	}
	for i, sl := range s.plan.slots {
		_, misses := m.unreached[i]
		if !misses && m.asked[i] && !sl.vacant && (i != m.home || s.masterProven(m, ranks)) {
			reaching++
		}
	}
	if against > reaching {
		blamed = []string{master}
	}
	s.clearBlame(m, blamed)
	return blamed
}

// clearBlame lifts exclusions for which other nodes are now to blame. If a master is to blame, it
// pardons the nodes that did not reach this master. If another node is to blame, it pardons the
// master that this node did not reach.
func (s *State) clearBlame(m *master, blamed []string) {
	isBlamed := make(map[string]bool, len(blamed))
	for _, name := range blamed {
		isBlamed[name] = true
	}
	for name, missed := range m.missed {
		if isBlamed[name] {
			s.suspects.pardonUnreachable(missed)
		}
		if isBlamed[missed] {
			s.suspects.pardonUnreachable(name)
		}
	}
}

// masterProven reports whether the master has proven itself: either ranks run there, or ranks have
// run there and none have run on the nodes that do not reach it.
func (s *State) masterProven(m *master, ranks []int) bool {
	ran := func(rank int) bool {
		n := s.roster.nodes[s.plan.slots[rank].Node.Name]
		return n != nil && n.ran
	}
	return s.liveAt(m.home) || ran(m.home) && !slices.ContainsFunc(ranks, ran)
}

// stranded returns the units that wait for the master on nodes that are to blame. If the master
// itself is to blame, these are all waiting units. If a spare can then take the master's place, the
// units that run on the master are stranded too.
func (s *State) stranded(m *master, blamed []string) (units []*unit) {
	all := s.gang() || s.grouped() || blamed[0] == s.plan.slots[m.home].Node.Name
	_, err := s.groupFor(m.home, s.suspects.fit(s.roster.list()))
	movable := all && err == nil && s.spec.ExcludeAfter > 0
	for i := range s.progress.units {
		u := &s.progress.units[i]
		if s.masterOf(u) != m {
			continue
		}
		waits := s.readyToStart(u) && (all || slices.Contains(blamed, s.plan.slots[u.first].Node.Name))
		if waits || movable && u.first == m.home && u.phase == job.Running {
			units = append(units, u)
		}
	}
	return units
}

// moveMaster asks for another master among the nodes of the last attempt, if the master was to
// blame for the end of that attempt.
func (s *State) moveMaster(r placement.Request) (placement.Request, bool) {
	f := s.progress.units[0].cause
	if !f.unreachable() || f.Node != s.plan.slots[0].Node.Name || !s.Has(f.Node) {
		return r, false
	}
	there := slices.DeleteFunc(slices.Clone(s.plan.slots[1:]), func(sl slot) bool { return !s.Has(sl.Node.Name) })
	fit := slices.IndexFunc(there, func(sl slot) bool { return !s.Excludes(sl.Node.Name) })
	if len(there) == 0 {
		return r, false
	}
	name := there[max(0, fit)].Node.Name
	r.Keep = maps.Clone(r.Keep)
	r.Keep[name], r.Keep[f.Node] = r.Keep[f.Node], r.Keep[name]
	return r, true
}

// notReached says which nodes do not reach the master. One such node suggests a firewall on that
// node, and many suggest a wrong address of the master.
func (s *State) notReached(m *master, ranks []int) string {
	master := fmt.Sprintf("%s at %s (MASTER_ADDR:MASTER_PORT)", s.plan.slots[m.home].Node.Name, m.endpoint())
	if len(ranks) == 1 {
		return fmt.Sprintf("%s cannot reach %s: %s", words.Named(s.plan.slots[ranks[0]].Node), master, m.unreached[ranks[0]])
	}
	var list []string
	for _, rank := range ranks[:min(len(ranks), shownNodes)] {
		list = append(list, fmt.Sprintf("%s: %s", words.Named(s.plan.slots[rank].Node), m.unreached[rank]))
	}
	if more := len(ranks) - shownNodes; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of the %d other nodes cannot reach %s: %s", len(ranks), len(s.plan.slots)-1, master, strings.Join(list, ", "))
}

// portWait says what this unit waits for, or another unit that prepares.
func (s *State) portWait(u *unit) string {
	m := s.masterOf(u)
	switch {
	case m.ported && len(m.pending) == 0:
		if u := s.first(job.Preparing); u != nil {
			return s.leaveWait(u)
		}
		return ""
	case m.ported:
		return fmt.Sprintf("waiting for %s to reach the master at %s", s.proving(m), m.endpoint())
	case m.question == nil:
		return fmt.Sprintf("waiting for a node in the place of the master, %s", s.plan.slots[m.home].Node.Name)
	}
	return fmt.Sprintf("waiting for a free port on the master, %s", words.Named(s.plan.slots[m.home].Node))
}

// proving names the nodes that have not answered, or counts them if there are many.
func (s *State) proving(m *master) string {
	if len(m.pending) > shownNodes {
		return words.Count(len(m.pending), "node")
	}
	var names []string
	for _, rank := range slices.Sorted(maps.Keys(m.pending)) {
		names = append(names, words.Named(s.plan.slots[rank].Node))
	}
	return strings.Join(names, ", ")
}
