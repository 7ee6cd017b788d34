package launcher

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// membership is how this node takes part: it joins, and may come to lead the job if it is a candidate, which is nil where no other node can.
type membership struct {
	session.Options
	candidate *rendezvous.Candidate
}

// agent runs this node's agent, which does what f says, and returns the job's result as the coordinator told it.
func (h *here) agent(ctx context.Context, m membership, f *signals.Node) (Result, error) {
	m.Facts = h.job.facts()
	m.Lease, _ = leaseParts(h.job.Network.Lease)
	if m.candidate != nil {
		m.Voter = m.candidate
	}
	a := agent.Agent{
		Join: m.Options, Standalone: h.job.Stopping.Standalone, Grace: max(0, h.job.Stopping.Grace), Say: h.say, Warn: h.warn,
		Open: func(id string, _ agent.Assignment, at netip.Addr) (agent.Work, error) { return h.ready(id, at) },
		Joined: func(placement.Node) {
			if f.Joined() { // in place of the one that began here
				h.joined.Store(true)
			}
			f.Join()
		},
		Leave: f.Leave,
	}
	if h.job.reached() {
		a.Reached = h.merged.JustStopped
	} else {
		a.Signals = f.Pass
	}
	return ended(a.Run(ctx))
}

// ready is the job as this node, at an address, carries it out.
func (h *here) ready(id string, at netip.Addr) (agent.Work, error) {
	task, err := h.job.task(at, os.Environ())
	if err = errors.Join(err, h.enter(id)); err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task:   task,
		Output: agent.Output{Dir: h.dir, Of: h.job.output(h.console, h.warn)},
	}, nil
}

// task is what the ranks on this node, at an address, run, with an environment to inherit.
func (j Job) task(at netip.Addr, inherited []string) (agent.Task, error) {
	env, err := j.environment(inherited)
	if err != nil {
		return agent.Task{}, err
	}
	presets, err := j.presets(at)
	return agent.Task{
		Command: j.Command, Dir: j.Dir, Env: env, Presets: presets, Visibility: j.Ranks.Visibility, MasterPort: j.Ranks.MasterPort, Role: j.Ranks.Role,
		Rank0Store: j.Ranks.Store == storeRank0, ProxyStore: j.Ranks.Store == storeProxy, Bind: bind.Policy(j.Ranks.Bind), Strict: j.Ranks.Strict,
		Preload: j.Ranks.preload(), PreloadStrict: j.Ranks.PreloadStrict, Local: j.local(), Templates: j.Output.Torch != nil,
		Ports: j.Network.PortRange, Endpoint: j.Ranks.Endpoint, Stdin: j.Ranks.Stdin, NoticeSignal: j.Stopping.NoticeSignal,
		StopSignal: j.Stopping.StopSignal, Linger: j.Stopping.Linger, Grace: max(0, j.Stopping.Grace), Bundle: j.Health.Bundle == "on", HangTimeout: j.Health.HangTimeout,
	}, err
}
