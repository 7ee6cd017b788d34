package capacity_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
)

// machine is a machine that a provider has.
type machine struct {
	tag, kind, node string
	// ready is when its agent joins; zero if it never does. joined says that it has joined.
	ready  time.Time
	joined bool
	gpus   int
}

// advanceMachines lets machines join, and at random die or be drained.
func (w *world) advanceMachines() {
	for _, tag := range slices.Sorted(maps.Keys(w.machines)) {
		m := w.machines[tag]
		w.cost += time.Second
		switch {
		case !m.joined && !m.ready.IsZero() && !w.now.Before(m.ready):
			m.joined = true
			w.join(m)
		case m.joined && w.chance(4000):
			w.seen["lost"] = true
			w.print("%v %s dies", w.now.Unix(), m.node)
			delete(w.machines, tag)
			w.lose(m, "the spot instance ended")
		case m.joined && w.chance(2000) && w.state.Cluster.Has(m.node):
			w.seen["drained"] = true
			w.print("%v a person drains %s", w.now.Unix(), m.node)
			w.apply(replica.Entry{Event: cluster.Drain{Node: m.node}})
		}
		w.settle()
	}
}

func (w *world) join(m *machine) {
	w.nodes++
	m.node = fmt.Sprintf("n%d", w.nodes)
	if why := w.state.Capacity.Refuses(w.state.Epoch, m.node, m.tag); why != "" {
		w.print("%v %s is refused: %s", w.now.Unix(), m.node, why)
		return
	}
	n := nodeOf(m.node, m.gpus)
	n.Addr = netip.AddrFrom4([4]byte{10, 0, byte(w.nodes >> 8), byte(w.nodes)})
	n.Labels = map[string]string{capacity.TagLabel: m.tag}
	w.print("%v %s joins for %s with %d GPUs", w.now.Unix(), m.node, m.tag, m.gpus)
	w.apply(replica.Entry{Admitted: &replica.Member{Node: n}})
	w.apply(replica.Entry{Event: cluster.Joined{Node: n}})
}

func (w *world) lose(m *machine, why string) {
	for _, j := range w.jobs {
		maps.DeleteFunc(j.runs, func(p place, _ job.Start) bool { return p.node == m.node })
	}
	if w.state.Cluster.Has(m.node) {
		w.apply(replica.Entry{Event: cluster.Lost{Node: m.node, Why: why}})
	}
}

// work does what the workers of providers do. It checks which nodes they delete and how many nodes
// there are.
func (w *world) work() error {
	for _, c := range w.state.Capacity.Sorted() {
		m := w.machines[c.Tag]
		gone := func(why string) { w.apply(replica.Entry{Capacity: capacity.Gone{Tag: c.Tag, Why: why}}) }
		switch {
		case !c.Released.IsZero() && m != nil:
			if err := w.delete(m); err != nil {
				return err
			}
			w.deleted[c.Tag] = true
		case !c.Released.IsZero() && w.deleted[c.Tag]:
			gone("deleted")
		case !c.Released.IsZero():
			w.deleted[c.Tag] = true
		case !c.Joined.IsZero() || m != nil:
		case w.created[c.Tag]:
			gone("it vanished")
		case w.chance(6):
			w.seen["refused"] = true
			gone("no capacity")
		default:
			w.create(c)
		}
	}
	counts := map[string]int{}
	for _, m := range w.machines {
		counts[m.kind]++
	}
	for _, k := range w.kinds {
		if counts[k.Name] > k.Max {
			return fmt.Errorf("there are %d machines of kind %s, and its max is %d", counts[k.Name], k.Name, k.Max)
		}
	}
	if w.most > 0 && len(w.machines) > w.most {
		return fmt.Errorf("there are %d machines, and their max is %d", len(w.machines), w.most)
	}
	return nil
}

func (w *world) create(c capacity.Claim) {
	m := &machine{tag: c.Tag, kind: c.Kind, ready: w.now.Add(startTime), gpus: 4}
	switch {
	case w.chance(10): // it never joins
		m.ready = time.Time{}
	case w.chance(10):
		m.ready = w.now.Add(startTime * 6)
	case w.chance(40):
		m.gpus = 2
	}
	w.machines[c.Tag], w.created[c.Tag] = m, true
}

// delete ends a machine, which no job may hold.
func (w *world) delete(m *machine) error {
	for _, o := range w.state.Cluster.Offers() {
		if o.Node.Name == m.node && o.Held {
			return fmt.Errorf("%s is deleted while a job holds %s", m.tag, m.node)
		}
	}
	delete(w.machines, m.tag)
	if m.joined {
		w.lose(m, "it was deleted")
	}
	return nil
}
