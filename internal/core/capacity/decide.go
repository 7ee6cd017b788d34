package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/placement"
)

// rejoinTime is how long a lost node may take to come back, for example after its agent was
// restarted.
const rejoinTime = time.Minute

// leaveLimit is how long the agent of an idle drained node may take to leave. After that the node
// is deleted anyway.
const leaveLimit = 5 * time.Minute

// holdTime is how long nodes are kept, at most, for a job whose other nodes cannot be requested
// yet.
const holdTime = 5 * time.Minute

// decision is a decision in the making.
type decision struct {
	Situation
	out    Decision
	claims []Claim
	offers map[string]cluster.Offer
	supply *supply
	// counts is the number of claims of each kind, including claims that were released but are not
	// gone yet. active is the number of claims whose nodes jobs can have, now or later.
	counts, active map[string]int
	// needed are the tags of the nodes that waiting jobs get.
	needed map[string]bool
	// unusable says why no node of a kind is requested now.
	unusable map[string]string
	// soon has the unusable kinds that can be requested again within holdTime.
	soon map[string]bool
	// asked has the jobs for which nodes are requested, by kind.
	asked map[string][]string
	want  map[string]int
}

// Decide returns the decision for a situation.
func Decide(s Situation) Decision {
	d := &decision{
		Situation: s, claims: s.Pool.Sorted(), offers: map[string]cluster.Offer{}, supply: newSupply(),
		counts: map[string]int{}, active: map[string]int{}, needed: map[string]bool{}, unusable: map[string]string{}, soon: map[string]bool{},
		asked: map[string][]string{}, want: map[string]int{},
	}
	d.out.Waits = map[Wait]time.Time{}
	d.count()
	d.judgeKinds()
	d.serve()
	d.fill()
	for _, c := range d.claims {
		d.review(c)
	}
	d.request()
	return d.out
}

// kind finds a kind by its name.
func (d *decision) kind(name string) (Kind, bool) {
	i := slices.IndexFunc(d.Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return d.Kinds[i], true
}

// count counts the claims and fills the supply: first with the nodes that are present, then with
// the nodes that are on their way.
func (d *decision) count() {
	tags := map[string]string{}
	for _, c := range d.claims {
		d.counts[c.Kind]++
		if c.Present() {
			tags[c.Node] = c.Tag
		}
	}
	for _, o := range d.Offers {
		d.offers[o.Node.Name] = o
		if !o.Drained {
			d.supply.add(o.Free, o.Node.Name, tags[o.Node.Name])
		}
	}
	for _, c := range d.claims {
		k, known := d.kind(c.Kind)
		_, here := d.offers[c.Node]
		switch {
		case !known || !c.Released.IsZero():
		case c.Present() && here:
			if !d.offers[c.Node].Drained {
				d.active[c.Kind]++
			}
		case c.Joined.IsZero() || c.Present(): // the node has not joined yet, or has not reported what it runs
			d.active[c.Kind]++
			d.supply.add(k.Node, coming(c.Tag), c.Tag)
		}
	}
}

// coming is a name for a node on its way. No real node has such a name.
func coming(tag string) string { return "\x00" + tag }

// judgeKinds finds the kinds that cannot be requested now, because of a recent failure or because a
// node has less than its kind promises.
func (d *decision) judgeKinds() {
	for _, k := range d.Kinds {
		if b := d.Pool.Backoffs[k.Name]; b.lasts(d.Now) {
			d.unusable[k.Name] = fmt.Sprintf("not asked for until %s: %s", b.Until.Local().Format("15:04:05"), b.Why)
			d.soon[k.Name] = b.Until.Sub(d.Now) <= holdTime
			d.due(b.Until)
		}
	}
	for _, c := range d.claims {
		k, known := d.kind(c.Kind)
		o, here := d.offers[c.Node]
		if !known || !here || !c.Present() || c.Failed {
			continue
		}
		if why, less := lacks(o.Node, k.Node); less {
			d.soon[c.Kind] = false
			d.unusable[c.Kind] = fmt.Sprintf("node %s has %s; correct the kind", c.Node, why)
			d.do(Fail{Tag: c.Tag, Why: d.unusable[c.Kind]})
		}
	}
}

// usable reports whether nodes of a kind may be asked for now.
func (d *decision) usable(k Kind) bool {
	_, not := d.unusable[k.Name]
	return !not
}

// lacks reports whether a node has less than its kind promises, and less of what. More nodes of
// that kind would not help.
func lacks(n, promised placement.Node) (what string, less bool) {
	switch {
	case len(n.GPUs) < len(promised.GPUs):
		return fmt.Sprintf("%d of the %d GPUs of its kind", len(n.GPUs), len(promised.GPUs)), true
	case n.CPUs != 0 && promised.CPUs > n.CPUs:
		return fmt.Sprintf("%d of the %d CPUs of its kind", n.CPUs, promised.CPUs), true
	case n.Memory != 0 && promised.Memory > n.Memory:
		return fmt.Sprintf("%d of the %d bytes of memory of its kind", n.Memory, promised.Memory), true
	}
	return "", false
}

// due schedules the next decision for a time, if none is made before.
func (d *decision) due(at time.Time) {
	if d.out.Next.IsZero() || at.Before(d.out.Next) {
		d.out.Next = at
	}
}

// serve gives each job in the queue the nodes that it needs, and asks for missing nodes.
func (d *decision) serve() {
	failed := map[alike]bool{}
	for _, demand := range d.Demands {
		if d.out.Blocked != "" && !demand.Backfill {
			continue
		}
		key := keyOf(demand)
		if failed[key] || d.provide(demand) {
			continue
		}
		failed[key] = true
		if d.out.Blocked == "" {
			d.hold(demand)
			d.out.Blocked, d.out.Why = demand.Job, d.blocked()
		}
	}
}

// provide reports whether the supply and further requested nodes give a job all that it needs. If
// so, it reserves them for the job.
func (d *decision) provide(demand cluster.Demand) bool {
	plan, ok := d.supply.solve(demand)
	if !ok && !d.ask(demand) {
		return false
	}
	if !ok {
		if plan, ok = d.supply.solve(demand); !ok {
			return false
		}
	}
	d.supply.take(demand, plan, func(tag string) { d.needed[tag] = true })
	return true
}

// hold keeps the nodes of the first blocked job if the kinds of its other nodes are unusable for a
// short time only. So a provider that refuses one node does not cost a gang its other nodes.
func (d *decision) hold(demand cluster.Demand) {
	kinds := slices.DeleteFunc(slices.Clone(d.Kinds), func(k Kind) bool {
		return !d.usable(k) && !d.soon[k.Name] || d.room(k) == 0
	})
	o := d.least(demand, kinds...)
	var added []*node
	for _, k := range kinds {
		for range o.nodes[k.Name] {
			added = append(added, d.supply.add(k.Node, fmt.Sprintf("\x00hold-%d", len(added)), ""))
		}
	}
	if plan, ok := d.supply.solve(demand); ok {
		d.supply.take(demand, plan, func(tag string) { d.needed[tag] = true })
	}
	for _, n := range added {
		d.supply.drop(n)
	}
}

// blocked says for each kind why no nodes of it are requested.
func (d *decision) blocked() string {
	why := ""
	for _, k := range d.Kinds {
		text := d.unusable[k.Name]
		switch {
		case !d.usable(k):
		case d.counts[k.Name]+d.want[k.Name] >= k.Max:
			text = fmt.Sprintf("at its max of %d", k.Max)
		case d.room(k) == 0:
			text = fmt.Sprintf("the cluster may have %d nodes", d.Max)
		default:
			text = fmt.Sprintf("%d more would not do", d.room(k))
		}
		if why != "" {
			why += "; "
		}
		why += k.Name + ": " + text
	}
	return why
}

// room is how many more nodes of a kind there may be.
func (d *decision) room(k Kind) int {
	room := k.Max - d.counts[k.Name] - d.want[k.Name]
	if d.Max > 0 {
		room = min(room, d.left(k))
	}
	return max(0, room)
}

// left is how many more nodes of a kind the cluster's own Max allows; it ignores the kind's Max.
func (d *decision) left(k Kind) int {
	left := d.Max
	for _, n := range d.counts { // also of kinds that were removed
		left -= n
	}
	for _, other := range d.Kinds {
		left -= d.want[other.Name]
		if other.Name != k.Name {
			left -= max(0, other.Min-d.counts[other.Name]-d.want[other.Name])
		}
	}
	return left
}

// offer says how many nodes of each kind complete a job.
type offer struct {
	nodes map[string]int
	cost  float64
}

// ask requests the nodes that complete a job, and reports whether there are such nodes.
func (d *decision) ask(demand cluster.Demand) bool {
	if demand.Request.Order.By == placement.ByList { // the job names its nodes
		return false
	}
	kinds := slices.DeleteFunc(slices.Clone(d.Kinds), func(k Kind) bool { return !d.usable(k) || d.room(k) == 0 })
	slices.SortStableFunc(kinds, func(a, b Kind) int { return cmp.Compare(b.Priority, a.Priority) })
	for i := 0; i < len(kinds); {
		best := offer{}
		next := i
		for ; next < len(kinds) && kinds[next].Priority == kinds[i].Priority; next++ {
			if o := d.least(demand, kinds[next]); o.nodes != nil && (best.nodes == nil || o.cost < best.cost) {
				best = o
			}
		}
		if best.nodes != nil {
			d.accept(demand, best)
			return true
		}
		i = next
	}
	if len(kinds) < 2 {
		return false
	}
	o := d.least(demand, kinds...)
	if o.nodes == nil && d.Max > 0 { // the first kinds may leave no room for the last
		slices.Reverse(kinds)
		o = d.least(demand, kinds...)
	}
	if o.nodes != nil {
		d.accept(demand, o)
	}
	return o.nodes != nil
}

// least finds the fewest nodes that complete a job. It takes all possible nodes of one kind before
// it takes nodes of the next kind.
func (d *decision) least(demand cluster.Demand, kinds ...Kind) offer {
	limit := most(demand.Request)
	o := offer{nodes: map[string]int{}}
	var added []*node
	defer func() {
		for _, n := range added {
			d.supply.drop(n)
		}
		for name, n := range o.nodes {
			d.want[name] -= n
		}
	}()
	for _, k := range kinds {
		room := min(d.room(k), limit)
		base := len(added)
		grow := func(n int) bool {
			for len(added)-base < n {
				added = append(added, d.supply.add(k.Node, fmt.Sprintf("\x00new-%s-%d", k.Name, len(added)), ""))
			}
			for len(added)-base > n {
				d.supply.drop(added[len(added)-1])
				added = added[:len(added)-1]
			}
			_, ok := d.supply.solve(demand)
			return ok
		}
		n, enough := room, grow(room)
		if enough {
			n = fewest(room, grow)
		}
		o.nodes[k.Name], o.cost = n, o.cost+float64(n)*k.Cost
		d.want[k.Name] += n // until least returns
		if enough {
			return o
		}
	}
	return offer{}
}

// fewest is the smallest number from 1 to most that suffices, given that most suffices.
func fewest(most int, suffices func(int) bool) int {
	low, high := 1, most
	for low < high {
		if mid := (low + high) / 2; suffices(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// accept adds the nodes of an offer to the requested nodes.
func (d *decision) accept(demand cluster.Demand, o offer) {
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		k, _ := d.kind(name)
		for range o.nodes[name] {
			d.want[name]++
			d.supply.add(k.Node, fmt.Sprintf("\x00want-%s-%d", name, d.want[name]), "")
		}
		if len(d.asked[name]) < 4 {
			d.asked[name] = append(d.asked[name], demand.Job)
		}
	}
}

// fill requests the nodes that a kind lacks to reach its Min.
func (d *decision) fill() {
	for _, k := range d.Kinds {
		short := min(k.Min-d.active[k.Name]-d.want[k.Name], d.room(k))
		if short <= 0 || !d.usable(k) {
			continue
		}
		why := fmt.Sprintf("%s has %d of at least %d nodes", k.Name, d.active[k.Name]+d.want[k.Name], k.Min)
		d.counts[k.Name] += short
		d.do(Request{Kind: k.Name, Nodes: short, Code: CodeMin, Why: why})
	}
}

// request adds the requests for the nodes that jobs need, after all actions that make room.
func (d *decision) request() {
	for _, k := range d.Kinds {
		if n := d.want[k.Name]; n > 0 {
			d.do(Request{Kind: k.Name, Nodes: n, Code: CodeQueue, Why: "for job " + listed(d.asked[k.Name])})
		}
	}
}

// listed names the first few jobs.
func listed(jobs []string) string {
	text := jobs[0]
	for i, id := range jobs[1:] {
		if i == 2 {
			return text + " and others"
		}
		text += ", " + id
	}
	return text
}

func (d *decision) do(a Action) { d.out.Actions = append(d.out.Actions, a) }

// review gives back or gives up a claim that is not needed.
func (d *decision) review(c Claim) {
	k, known := d.kind(c.Kind)
	if !known || !c.Released.IsZero() {
		return
	}
	o, here := d.offers[c.Node]
	switch {
	case c.Present() && !here: // the node has not reported yet what it runs
	case c.Present():
		d.reviewNode(c, k, o)
	case !c.Joined.IsZero() && c.Left:
		d.do(Delete{Tag: c.Tag, Code: CodeLeft, Why: "node " + c.Node + " was drained and has left"})
	case !c.Joined.IsZero():
		if d.waited(c.Tag, CodeLost, c.Lost, rejoinTime) {
			d.do(Delete{Tag: c.Tag, Code: CodeLost, Why: fmt.Sprintf("node %s was lost and has not come back within %v", c.Node, rejoinTime)})
		}
	case d.waited(c.Tag, CodeLate, c.Requested, k.StartTimeout):
		d.do(Delete{Tag: c.Tag, Code: CodeLate, Why: fmt.Sprintf("it did not come within %v", k.StartTimeout)})
	case d.active[c.Kind] > k.Min && d.idle(c.Tag, k.Idle):
		d.active[c.Kind]--
		d.do(Delete{Tag: c.Tag, Code: CodeUnneeded, Why: fmt.Sprintf("no job has needed it for %v", k.Idle)})
	}
}

// reviewNode drains a node that is idle. It deletes a drained node that no job holds if the node
// has not left after a while.
func (d *decision) reviewNode(c Claim, k Kind, o cluster.Offer) {
	switch {
	case o.Held:
	case o.Drained:
		if d.idle(c.Tag, k.Idle+leaveLimit) {
			d.do(Delete{Tag: c.Tag, Code: CodeIdle, Why: fmt.Sprintf("node %s was drained and has not left within %v", c.Node, leaveLimit)})
		}
	case d.active[c.Kind] > k.Min && d.idle(c.Tag, k.Idle):
		d.active[c.Kind]--
		d.do(Drain{Node: c.Node, Tag: c.Tag, Code: CodeIdle, Why: fmt.Sprintf("no job has needed it for %v", k.Idle)})
	}
}

// idle reports whether no job has needed a node for the time of limit.
func (d *decision) idle(tag string, limit time.Duration) bool {
	return !d.needed[tag] && d.waited(tag, CodeIdle, time.Time{}, limit)
}

// waited reports whether a wait has lasted for the time of limit. began is when the wait began. If
// began is zero, or in the future because the clock was set back, the wait began when a decision
// first saw it.
func (d *decision) waited(tag string, code Code, began time.Time, limit time.Duration) bool {
	if began.IsZero() || began.After(d.Now) {
		w := Wait{tag, code}
		seen, known := d.Waits[w]
		if !known || seen.After(d.Now) {
			seen = d.Now
		}
		d.out.Waits[w], began = seen, seen
	}
	return d.reached(began.Add(limit))
}

// reached reports whether a time has come. If not, it schedules the next decision for that time.
func (d *decision) reached(at time.Time) bool {
	if d.Now.Before(at) {
		d.due(at)
		return false
	}
	return true
}
