package jobstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// attemptOf names one attempt of a unit.
type attemptOf struct{ unit, attempt int }

// place is one attempt of a unit on one node.
type place struct {
	attemptOf
	node string
}

// truth knows which processes live where and which events the job got, and checks the job's actions
// against these facts.
type truth struct {
	w *world
	// newest is the newest attempt of each unit for which a start was ordered, by unit.
	newest map[int]int
	// ordered has the ranks of each start. told has the places that were ordered to stop.
	ordered map[place][]int
	told    map[place]bool
	// exits says how ranks really ended, and tails are their last words. heard, ended and begun are
	// the reports about ranks from agents that have not been lost since.
	exits map[attemptOf]map[int]report.Exit
	tails map[attemptOf]map[int]string
	heard map[attemptOf]map[int]bool
	ended map[place]bool
	begun map[place]bool
	// failed are the reported failures of an attempt until its end, in order.
	failed  map[attemptOf][]reported
	spawned bool
	// still are the newest reports of ranks that stand still, and hung are the attempts that had to
	// fail because of such reports. kept is the evidence that had to be kept of a stopped attempt.
	still   map[place]job.Stalled
	hung    map[attemptOf]bool
	kept    map[place]job.Evidence
	elapsed map[attemptOf]bool
	// asked is the newest question for a port. ports are the answers to such questions, and used
	// the ports with which ranks have started.
	asked question
	ports map[question][]int
	used  map[question]bool
	// unable are the nodes that reported that they cannot start their ranks.
	unable map[string]bool
	// masterGone says that the node of that question was lost since.
	masterGone bool
	// reach has, for each node, the newest question whether the node reaches the port. reached are
	// the questions that were answered with yes, and cut the questions that were answered with no.
	reach   map[string]job.Reach
	reached map[job.Reach]bool
	cut     map[job.Reach]bool
	// missed is a master that was not reached: in the next attempt, it may trade places with
	// another node.
	missed string
	// alarms has the newest alarm of each kind. homes are the node ranks of nodes since they were
	// last lost.
	alarms  map[job.AlarmKind]int
	homes   map[string]int
	cancels int
	// signal is the signal of the first cancel.
	signal int
	// cancelled says that the job ends by a cancel.
	cancelled bool
	// expires says that the end of the job was announced, loose says that the scheduler ends the
	// job, and expired says that the job has ended because of the announcement. readied are the
	// places that were ready.
	expires, loose, expired bool
	readied                 map[place]bool
	// evacuated are the attempts on a node that was to leave.
	evacuated map[attemptOf]bool
	// growDue says that the time for which the number of nodes stays the same is over.
	growDue bool
	// departs are the departures by their alarm. limits has the shortest deadline that was
	// announced to each attempt. affected are the attempts that the newest event may concern.
	departs  map[int]departing
	limits   map[attemptOf]time.Duration
	affected []attemptOf
	// leaves are the nodes whose departure was announced.
	leaves map[string]bool
	// broken are the nodes where a rank said that its GPU fails.
	broken map[string]bool
	// refills counts how often the budget was filled again, readmits how often all exclusions
	// ended, and free the restarts at no cost.
	refills, readmits, free int
	// lost are the ranks of an attempt that the others must go on without.
	lost map[attemptOf]map[int]bool
	// away are the places whose nodes were lost with such ranks.
	away map[place]bool
	// weighed are the ranks of an attempt that were reported to have failed.
	weighed map[attemptOf]map[int]bool
	// seen has the situations that must occur in some worlds.
	seen   map[string]bool
	result *report.Result
}

func newTruth(w *world) *truth {
	return &truth{
		w: w, newest: map[int]int{}, ordered: map[place][]int{}, told: map[place]bool{}, begun: map[place]bool{},
		ports: map[question][]int{}, unable: map[string]bool{}, used: map[question]bool{}, reach: map[string]job.Reach{}, reached: map[job.Reach]bool{}, cut: map[job.Reach]bool{},
		exits: map[attemptOf]map[int]report.Exit{}, tails: map[attemptOf]map[int]string{}, heard: map[attemptOf]map[int]bool{}, ended: map[place]bool{},
		readied: map[place]bool{}, still: map[place]job.Stalled{}, hung: map[attemptOf]bool{}, kept: map[place]job.Evidence{},
		failed: map[attemptOf][]reported{}, evacuated: map[attemptOf]bool{}, leaves: map[string]bool{}, broken: map[string]bool{}, elapsed: map[attemptOf]bool{}, alarms: map[job.AlarmKind]int{}, homes: map[string]int{},
		lost: map[attemptOf]map[int]bool{}, away: map[place]bool{}, weighed: map[attemptOf]map[int]bool{}, seen: map[string]bool{}, departs: map[int]departing{}, limits: map[attemptOf]time.Duration{},
	}
}

// codeExpired is the code of a job whose end was announced.
const codeExpired = 143

// exited notes the true end of a process.
func (t *truth) exited(e job.Exited) {
	at := attemptOf{e.Unit, e.Attempt}
	if t.exits[at] == nil {
		t.exits[at] = map[int]report.Exit{}
	}
	t.exits[at][e.Rank] = e.Exit
	if t.tails[at] == nil {
		t.tails[at] = map[int]string{}
	}
	t.tails[at][e.Rank] = e.Tail
}

// started checks, when an order to start arrives at a node, that it is neither too early nor too
// late.
func (t *truth) started(a *agent, o job.Start) error {
	switch {
	case t.result != nil:
		return fmt.Errorf("%s starts unit %d attempt %d after the end", a.node.Name, o.Unit, o.Attempt)
	case t.newest[o.Unit] > o.Attempt:
		return fmt.Errorf("%s starts unit %d attempt %d after attempt %d", a.node.Name, o.Unit, o.Attempt, t.newest[o.Unit])
	}
	return t.alone(o)
}

// alone checks that no earlier attempt of any of the ranks lives anywhere.
func (t *truth) alone(o job.Start) error {
	for _, a := range t.w.agents {
		for id, r := range a.runs {
			for _, b := range o.Group.Bundles {
				if slices.Contains(r.alive, b.Rank) && (id != o.Unit || r.attempt < o.Attempt) {
					return fmt.Errorf("start of %v while %v lives on %s", o, r, a.node.Name)
				}
			}
			if id == o.Unit && r.attempt < o.Attempt && len(r.alive) > 0 {
				return fmt.Errorf("start of %v while %v lives on %s", o, r, a.node.Name)
			}
		}
	}
	return nil
}

// note records an event that the job is about to get.
func (t *truth) note(ev job.Event) {
	t.noteNotice(ev)
	switch ev := ev.(type) {
	case job.Elapsed:
		t.elapsed[attemptOf{ev.Unit, ev.Attempt}] = true
	case job.Cancel:
		if ev.Within > 0 {
			t.expire(ev.Loose)
			return
		}
		if ev.Once && t.cancels > 0 {
			return
		}
		if t.cancels++; t.cancels == 1 {
			t.signal = ev.Signal
		}
		t.cancelled = t.cancelled || t.w.state.ending.result == nil
	case job.Lost:
		t.nodeGone(ev.Node)
	default: // a report: see accept
	}
}

// accept records a report that is not stale.
func (t *truth) accept(ev job.Event) {
	switch ev := ev.(type) {
	case job.Started:
		t.begun[place{attemptOf{ev.Unit, ev.Attempt}, ev.Node}] = true
	case job.Reached:
		if ask := t.reach[ev.Node]; ask.Seq == ev.Seq && !t.reached[ask] && !t.cut[ask] { // the first answer counts
			t.reached[ask], t.cut[ask] = ev.Err == "" && ev.Unable.OK(), ev.Err != ""
		}
		t.unable[ev.Node] = t.unable[ev.Node] || !ev.Unable.OK()
	case job.Prepared:
		t.unable[ev.Node] = t.unable[ev.Node] || !ev.Unable.OK()
	case job.Ready:
		t.readied[place{attemptOf{ev.Unit, ev.Attempt}, ev.Node}] = true
	case job.Stalled:
		t.acceptStalled(ev)
	case job.Exited:
		t.acceptExit(ev)
	case job.Stopped:
		p := place{attemptOf{ev.Unit, ev.Attempt}, ev.Node}
		for _, rank := range t.ordered[p] {
			if !t.heard[p.attemptOf][rank] && len(t.failed[p.attemptOf]) == 0 {
				t.fail(p.attemptOf, reported{rank: -1})
			}
		}
		t.ended[p] = true
	}
}

// acceptStalled fails an attempt when none of its nodes moves, or a heartbeat is missed twice in a
// row.
func (t *truth) acceptStalled(e job.Stalled) {
	p := place{attemptOf{e.Unit, e.Attempt}, e.Node}
	if t.ordered[p] == nil || t.ended[p] || t.newest[p.unit] != p.attempt || t.allHeard(p.attemptOf) || t.evacuated[p.attemptOf] {
		return
	}
	beats := beats(t.still[p]) && beats(e)
	t.still[p] = e
	moving := 0
	for other := range t.ordered {
		if said := t.still[other]; other.attemptOf == p.attemptOf && !t.ended[other] && (len(said.Ranks) == 0 || said.Moving > 0) {
			moving++
		}
	}
	if (moving == 0 || beats) && len(t.failed[p.attemptOf]) == 0 && t.fail(p.attemptOf, reported{rank: -1}) {
		t.hung[p.attemptOf] = true
	}
}

func (t *truth) acceptExit(e job.Exited) {
	at := attemptOf{e.Unit, e.Attempt}
	if t.ended[place{at, e.Node}] {
		return
	}
	before := t.hear(at, e.Rank)
	t.broken[e.Node] = t.broken[e.Node] || strings.Contains(e.Tail, "uncorrectable ECC")
	if before && t.lost[at][e.Rank] || !before && !e.Exit.OK() && e.Exit.Spawn == "" && t.lose(at, e.Rank) {
		return
	}
	if !e.Exit.OK() && t.fail(at, reported{e.Rank, e.At, e.Told, t.tails[at][e.Rank]}) {
		t.spawned = t.spawned || e.Exit.Spawn != "" && !t.evacuated[at]
	}
}

// weighs reports whether a failure that is reported for the first time belongs to a gang that is
// being stopped, or is about to be stopped.
func (t *truth) weighs(e job.Exited) bool {
	at := attemptOf{e.Unit, e.Attempt}
	p := place{at, e.Node}
	if !slices.ContainsFunc(t.failed[at], func(f reported) bool { return f.rank == e.Rank }) || t.weighed[at][e.Rank] {
		return false
	}
	if t.weighed[at] == nil {
		t.weighed[at] = map[int]bool{}
	}
	t.weighed[at][e.Rank] = true
	lives := t.ordered[p] != nil && !t.ended[p] && t.newest[e.Unit] == e.Attempt
	return t.w.state.gang() && lives && !t.hung[at] && !t.evacuated[at] && t.w.state.ending.result == nil
}

// reported is a failure as it was reported. rank is -1 for the failure of a whole node.
type reported struct {
	rank int
	at   time.Time
	told bool
	tail string
}

// fail notes a failure, and reports whether it is the first of its attempt.
func (t *truth) fail(at attemptOf, r reported) bool {
	if t.newest[at.unit] != at.attempt || t.result != nil {
		return false
	}
	t.failed[at] = append(t.failed[at], r)
	return len(t.failed[at]) == 1
}

// nodeGone fails the attempts that still needed a lost node.
func (t *truth) nodeGone(node string) {
	t.masterGone = t.masterGone || t.asked.node == node
	delete(t.homes, node)
	delete(t.reach, node)
	for p := range t.ordered {
		if p.node != node || t.newest[p.unit] != p.attempt {
			continue
		}
		var left []int
		for _, rank := range t.ordered[p] {
			if !t.heard[p.attemptOf][rank] {
				left = append(left, rank)
			}
		}
		switch {
		case t.begun[p] && !t.masterGone && !t.allHeard(p.attemptOf) && t.lose(p.attemptOf, left...):
			t.away[p] = true
			for _, rank := range left {
				t.hear(p.attemptOf, rank)
			}
		case !t.ended[p] || len(t.failed[p.attemptOf]) == 0 && !t.allHeard(p.attemptOf):
			t.fail(p.attemptOf, reported{rank: -1})
		}
		t.ended[p] = true
	}
}

// lose notes the end of some ranks of an attempt, and reports whether the other ranks must go on
// without them.
func (t *truth) lose(at attemptOf, ranks ...int) bool {
	all := 0
	for p, list := range t.ordered {
		if p.attemptOf == at {
			all += len(list)
		}
	}
	n := len(t.lost[at]) + len(ranks)
	if k := t.w.spec.LostRanks; k == 0 || n > k || n == all || t.newest[at.unit] != at.attempt || len(t.failed[at]) > 0 ||
		t.evacuated[at] || t.stops(at) || t.w.state.ending.result != nil {
		return false
	}
	if t.lost[at] == nil {
		t.lost[at] = map[int]bool{}
	}
	for _, rank := range ranks {
		t.lost[at][rank] = true
		t.seen["lost ranks"] = true
	}
	return true
}

// hear notes that the end of a rank is known, and reports whether it was known before.
func (t *truth) hear(at attemptOf, rank int) (before bool) {
	if t.heard[at] == nil {
		t.heard[at] = map[int]bool{}
	}
	before = t.heard[at][rank]
	t.heard[at][rank] = true
	return before
}

// expire notes that all nodes are to leave.
func (t *truth) expire(loose bool) {
	if t.w.state.ending.result == nil && !t.done() {
		t.expires, t.loose = true, t.loose || loose
		for _, a := range t.w.agents {
			t.evacuate(a.node.Name)
		}
	}
}

// drained notes that a node is to leave.
func (t *truth) drained(node string) {
	t.leaves[node] = true
	t.evacuate(node)
}

// evacuate notes that the ranks on a node will be stopped.
func (t *truth) evacuate(node string) {
	for p := range t.ordered {
		if p.node == node && t.newest[p.unit] == p.attempt && !t.away[p] {
			t.evacuated[p.attemptOf] = true
		}
	}
}

// allHeard reports whether every rank of an attempt was reported to have ended.
func (t *truth) allHeard(at attemptOf) bool {
	for p, ranks := range t.ordered {
		for _, rank := range ranks {
			if p.attemptOf == at && !t.heard[at][rank] {
				return false
			}
		}
	}
	return true
}

func (t *truth) anyAlive() bool {
	return slices.ContainsFunc(t.w.agents, func(a *agent) bool {
		for _, r := range a.runs {
			if len(r.alive) > 0 {
				return true
			}
		}
		return false
	})
}

// ending names how the job of a world ended.
func (t *truth) ending() string {
	switch r := t.result; {
	case r == nil:
		return "none"
	case r.Cause != nil && r.Cause.Hung:
		return "hang"
	case r.Code == 0 && r.Restarts > 0:
		return "success after restarts"
	case r.Code == 0:
		return "success"
	case r.Code == codeTimeout:
		return "timeout"
	case r.Code == codeOwn:
		return "own failure"
	case r.Code == codeCancelled:
		return "cancelled"
	case r.Code == codeExpired:
		return "expired"
	}
	return "rank failed"
}

// question identifies a [job.Prepare].
type question struct {
	node          string
	unit, attempt int
}

func questionOf(p job.Prepare) question { return question{p.Node, p.Unit, p.Attempt} }
