package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/door"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// The values of Health.Preflight.
const (
	preflightOff     = "off"
	preflightWarn    = "warn"
	preflightExclude = "exclude"
	preflightFail    = "fail"
)

var preflights = []string{preflightOff, preflightWarn, preflightExclude, preflightFail}

// examine looks at this machine and tells by labels what it found. Its GPUs count if the job wants some; devices are those that
// the driver shows.
func (h Health) examine(ctx context.Context, node *placement.Node, gpus bool, devices []gpu.Device, system health.System) []health.Finding {
	if h.Preflight == preflightOff {
		return nil
	}
	system.GPUs = nil
	if gpus {
		system.GPUs = func(context.Context) ([]gpu.Device, string, error) { return devices, "", nil }
	}
	facts := health.Collect(ctx, system)
	findings := health.Check(facts)
	labels := health.Labels(findings, facts.Versions)
	if bad := health.Errors(findings); len(bad) > 0 && h.Preflight != preflightWarn {
		labels[placement.UnfitLabel] = codes(bad)
	}
	maps.Copy(labels, node.Labels)
	node.Labels = labels
	return findings
}

// codes are in the order of the findings, each once.
func codes(findings []health.Finding) string {
	var list []string
	for _, f := range findings {
		if !slices.Contains(list, f.Warnable.Code) {
			list = append(list, f.Warnable.Code)
		}
	}
	return strings.Join(list, ", ")
}

// roster is what the nodes of a job have said of themselves. It belongs to the goroutine in which a coordinator speaks.
type roster struct {
	// wanted is how many nodes the job may have.
	wanted int
	nodes  map[string]map[string]string
	// untold are the nodes of whose findings nothing was said yet, in the order in which they came.
	untold []string
	// gpus are those that the nodes offer, and held is how many there should be of all nodes; 0
	// once that was told.
	gpus, held int
	// lonely tells, if nobody comes, why that may be; nil where nothing is known.
	lonely *time.Timer
	// said are the differences between nodes that were told.
	said map[string]bool
	warn func(error)
	// refuse ends the job because of an error, which fails says; nil leaves it.
	refuse func(why string)
	fails  bool
}

// joined takes what a node says. A node that comes again, with nothing new, has been told of.
func (m *roster) joined(n placement.Node) {
	if labels, known := m.nodes[n.Name]; known && maps.Equal(labels, n.Labels) {
		return
	}
	if _, known := m.nodes[n.Name]; !known {
		m.gpus += len(n.GPUs)
	}
	m.nodes[n.Name] = n.Labels
	if m.lonely != nil && len(m.nodes) > 1 {
		m.lonely.Stop()
	}
	m.untold = append(m.untold, n.Name)
	if codes := n.Labels[placement.UnfitLabel]; codes != "" && m.refuse != nil {
		why := n.Name + " is unfit: " + codes
		if findings, _ := health.FromLabels(n.Labels); len(findings) > 0 { // none of codes that only a newer golaunch knows
			findings[0].Node = n.Name
			why = findings[0].String()
		}
		m.refuse(why)
	}
	if len(m.nodes) >= m.wanted {
		m.tell()
	}
}

// decided tells of the nodes that are there once there is no more waiting for others.
func (m *roster) decided(d wire.Decision) {
	switch d.Event.(type) {
	case job.Submitted, job.Queued, job.Joined:
	default:
		m.tell()
	}
}

// tell warns of what was not told yet: of the nodes' findings, and of what differs between all of them.
func (m *roster) tell() {
	if len(m.untold) == 0 {
		return
	}
	of, versions := map[string][]health.Finding{}, map[string]health.Versions{}
	for name, labels := range m.nodes {
		of[name], versions[name] = health.FromLabels(labels)
	}
	findings := health.Gather(m.untold, of)
	for _, f := range health.Skew(versions) {
		if !m.said[f.Text] {
			m.said[f.Text] = true
			findings = append(findings, f)
		}
	}
	m.untold = nil
	if m.held > m.gpus {
		m.warn(fmt.Errorf("Slurm has given this job %d GPUs, and golaunch, which is one task on each node, %d of them: request GPUs with "+
			"--gpus-per-node, not for each task", m.held, m.gpus))
		m.held = 0
	}
	for _, f := range findings {
		m.warn(errors.New(f.String()))
	}
}

// roster is for the job that a coordinator of this process runs.
func (h *here) roster() *roster {
	m := &roster{wanted: h.job.Resources.MaxNodes, nodes: map[string]map[string]string{}, said: map[string]bool{}, warn: h.warn, held: h.held}
	if h.lonely != "" {
		m.lonely = time.AfterFunc(door.Quiet, func() { h.warn(errors.New(h.lonely)) })
	}
	m.wanted, m.fails = max(m.wanted, h.job.pool()), h.job.Health.Preflight == preflightFail
	return m
}

// asks has a coordinator that is about to run end the job for a node that is unfit, if the job wants that.
func (m *roster) asks(c *rendezvous.Coordinator) {
	if m.fails {
		m.refuse = func(why string) { c.Cancel(125, why) }
	}
}
