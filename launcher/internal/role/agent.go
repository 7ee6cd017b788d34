package role

import (
	"context"

	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// RunAgent runs this node's agent, which obeys n, and returns the job's result as the coordinator
// sent it.
func (p *Process) RunAgent(ctx context.Context, m Member, n *signals.Node) (report.Result, error) {
	a := p.Agent
	a.Join = m.Options
	a.Workspaces.Server, a.Workspaces.Client = m.Server, m.TLS
	a.Join.Facts, a.Join.Lease = p.Coordinator.Facts, p.Coordinator.Lease
	if m.Candidate != nil {
		a.Join.Voter = m.Candidate
	}
	a.Joined = func(placement.Node) {
		if n.Joined() { // it has joined before, so this is another coordinator
			p.joined.Store(true)
		}
		n.Join()
	}
	a.Leave = n.Leave
	if p.Signals.ReachRanks {
		a.Reached = p.Signals.JustStopped
	} else {
		a.Signals = n.Pass
	}
	return a.Run(ctx)
}
