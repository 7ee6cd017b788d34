package web

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// machine is the page of a node.
type machine struct {
	Name     string      `json:"name"`
	Address  string      `json:"address"`
	State    string      `json:"state"`
	Silent   real        `json:"silent"`
	Missing  string      `json:"missing"`
	Heard    real        `json:"heard"`
	GPUs     int         `json:"gpus"`
	Used     int         `json:"used"`
	Cores    int         `json:"cores"`
	Memory   real        `json:"memory"`
	Labels   []string    `json:"labels"`
	Holds    []hold      `json:"holds"`
	Excluded []exclusion `json:"excluded"`
}

type hold struct {
	Job  string `json:"job"`
	GPUs []int  `json:"gpus"`
}

type exclusion struct {
	Job   string `json:"job"`
	Why   string `json:"why"`
	Until moment `json:"until"`
}

// node adds the parts of a node's page. Without a part "node" no such node exists.
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
	own := n.NodeStatus
	m := machine{
		Name: text(own.Name, maxName), State: stateOf(n), Silent: real(n.Silent.Seconds()), Missing: text(n.Missing, maxReason),
		Heard: real(ago(s.At, n.Heard)), GPUs: len(own.GPUs), Used: n.GPUsUsed(), Cores: own.CPUs, Memory: real(math.NaN()),
		Labels: []string{}, Holds: []hold{}, Excluded: []exclusion{},
	}
	if own.Addr.IsValid() {
		m.Address = own.Addr.String()
	}
	if total := cmp.Or(float64(own.Memory), n.Now.MemoryTotal); total > 0 {
		m.Memory = real(total)
	}
	for _, key := range slices.Sorted(maps.Keys(own.Labels)) {
		m.Labels = append(m.Labels, text(fmt.Sprintf("%s=%s", key, own.Labels[key]), maxName))
	}
	for _, h := range n.Holds {
		m.Holds = append(m.Holds, hold{text(h.Job, maxName), append([]int{}, h.GPUs...)})
	}
	for _, x := range n.Excluded {
		m.Excluded = append(m.Excluded, exclusion{text(x.Job, maxName), text(x.Why, maxReason), when(x.Until)})
	}
	return m
}
