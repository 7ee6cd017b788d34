package web

import (
	"cmp"
	"math"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// machine is the page of a node: the facts of status --json, and the facts of the monitor. Texts
// are safe and short.
type machine struct {
	listing.Node
	State string `json:"state"`
	// Silent and Heard are in seconds, and Memory is in bytes.
	Silent  real   `json:"silent"`
	Missing string `json:"missing"`
	Heard   real   `json:"heard"`
	Memory  real   `json:"memory"`
}

// node adds the parts of a node's page. If no such node exists, there is no part "node".
func (p parts) node(of *alert.Picture, name string) {
	s := of.State
	n := s.Node(name)
	if n == nil {
		return
	}
	p.add("node", machineOf(n, s))
	var here []*view.Rank
	for _, j := range s.Jobs {
		for _, r := range j.Ranks {
			if r.Node == name {
				here = append(here, r)
			}
		}
	}
	p.ranks(here, s.At)
	p.alerts(here, of)
	samples := n.Samples[max(0, len(n.Samples)-maxSamples):]
	num := func(name string, digits int, value func(report.Sample) float64) {
		p.numbers("s."+name, digits, values(samples, value))
	}
	num("at", whole, func(s report.Sample) float64 { return float64(s.At.UnixMilli()) })
	num("cpus", 3, func(s report.Sample) float64 { return s.CPUs })
	num("memory", 3, func(s report.Sample) float64 { return s.Memory })
	num("received", 3, func(s report.Sample) float64 { return s.Received })
	num("sent", 3, func(s report.Sample) float64 { return s.Sent })
}

// maxSamples bounds the past of a node that its page shows.
const maxSamples = 1000

func machineOf(n *view.Node, s *view.State) machine {
	m := machine{
		Node: listing.NewNode(shownNode(n.NodeStatus)), State: stateOf(n), Silent: real(n.Silent.Seconds()), Missing: text(n.Missing, maxReason),
		Heard: real(ago(s.At, n.Heard)), Memory: real(math.NaN()),
	}
	if total := cmp.Or(float64(n.NodeStatus.Memory), n.Now.MemoryTotal); total > 0 {
		m.Memory = real(total)
	}
	return m
}

// shownNode is a status whose texts are safe and short.
func shownNode(n report.NodeStatus) report.NodeStatus {
	n.Name = text(n.Name, maxName)
	labels, holds, excluded := map[string]string{}, []report.Holding{}, []report.Exclusion{}
	for key, value := range n.Labels {
		labels[text(key, maxName)] = text(value, maxName)
	}
	for _, h := range n.Holds {
		holds = append(holds, report.Holding{Job: text(h.Job, maxName), GPUs: append([]int{}, h.GPUs...)})
	}
	for _, x := range n.Excluded {
		excluded = append(excluded, report.Exclusion{Job: text(x.Job, maxName), Why: text(x.Why, maxReason), Until: x.Until})
	}
	n.Labels, n.Holds, n.Excluded = labels, holds, excluded
	return n
}
