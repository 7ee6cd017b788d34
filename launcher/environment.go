package launcher

import (
	"net/netip"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/process/filetimer"
	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/rankenv"
)

// task returns what the ranks run on this node. at is the node's address, and inherited is the
// environment that the ranks inherit.
func (j Job) task(at netip.Addr, inherited []string) (agent.Task, error) {
	env, err := j.environment(inherited)
	if err != nil {
		return agent.Task{}, err
	}
	presets, err := j.presets(at)
	r := j.Ranks
	return agent.Task{
		Command: j.Command, Dir: j.Dir, Env: env, Presets: presets, Visibility: r.Visibility, PerGPU: j.Resources.PerGPU, MasterPort: r.MasterPort, Role: r.Role,
		Rank0Store: r.Store == storeRank0, ProxyStore: r.Store == storeProxy, Bind: bind.Policy(r.Bind), Strict: r.Strict,
		Preload: r.preload(), PreloadStrict: r.PreloadStrict, Local: j.local(), Templates: j.Output.Torch != nil,
		Ports: j.Network.PortRange, Endpoint: r.Endpoint, Stdin: r.Stdin, NoticeSignal: j.Stopping.NoticeSignal,
		StopSignal: j.Stopping.StopSignal, Linger: j.Stopping.Linger, Grace: max(0, j.Stopping.Grace), Bundle: j.Health.Bundle == "on",
		HangTimeout: j.Health.HangTimeout, RankMonitor: j.Health.RankMonitor, InProcessRestart: j.Health.InProcessRestart, CheckpointDir: j.CheckpointDir,
		SetAsidePartial: j.SetAsidePartial,
	}, err
}

// environment returns the variables that all ranks of this node share: the inherited ones and the
// job's.
func (j Job) environment(inherited []string) (*rankenv.Base, error) {
	user, err := j.userEnv()
	if err != nil {
		return nil, err
	}
	if j.Ranks.TimerFile != "" {
		user = append(user, rankenv.Var{
			Name: filetimer.Variable, Value: j.Ranks.TimerFile, Source: rankenv.Golaunch, Reason: "where the rank may say by when it is to be killed",
		})
	}
	return rankenv.Merge(rankenv.Layers{User: user, Inherited: inherited, KeepEnv: j.Ranks.KeepEnv}), nil
}

func (j Job) userEnv() ([]rankenv.Var, error) {
	vars := make([]rankenv.Var, len(j.Env))
	for i, text := range j.Env {
		var err error
		if vars[i], err = rankenv.ParseEnv(text); err != nil {
			return nil, usage.Errorf("%v", err)
		}
	}
	return vars, nil
}

// resolveEnv replaces each entry NAME of Env by this process's value, which other machines lack.
func (j *Job) resolveEnv() error {
	user, err := j.userEnv()
	j.Env = nil
	for _, v := range user {
		j.Env = append(j.Env, v.Name+"="+v.Value)
	}
	return err
}

// presets returns the variables for the fabric, for NCCL's profiler, and for the time at which the
// allocation ends. The user's own variables have precedence.
func (j Job) presets(addr netip.Addr) (func(network string) []rankenv.Var, error) {
	fabric, err := j.fabric(addr)
	end, known := slurm.EndFromEnv()
	if err != nil || j.Ranks.Inspector == "" && !known {
		return fabric, err
	}
	return func(network string) []rankenv.Var {
		vars := fabric(network)
		if j.Ranks.Inspector != "" {
			vars = append(vars, nccl.Inspector(j.Ranks.Inspector)...)
		}
		if known {
			vars = append(vars, rankenv.Expiration(end.At, end.String()))
		}
		return vars
	}, nil
}

// fabric returns the variables for the node at addr, according to what the networks of the job's
// nodes have in common. A job on one node uses no fabric.
func (j Job) fabric(addr netip.Addr) (func(network string) []rankenv.Var, error) {
	if j.Ranks.Preset == "auto" && (j.Resources.MaxNodes == 1 || addr.IsLoopback()) {
		return func(string) []rankenv.Var { return nil }, nil
	}
	facts, _, err := machine.Network(addr)
	if err != nil {
		return nil, err
	}
	if _, err := nccl.Vars(j.Ranks.Preset, facts.Own(), facts); err != nil {
		return nil, usage.Errorf("%v", err)
	}
	return func(network string) []rankenv.Var {
		agreed, ok := nccl.ParseAgreement(network)
		if !ok {
			agreed = facts.Own()
		}
		vars, _ := nccl.Vars(j.Ranks.Preset, agreed, facts) // no error: the first call of Vars has checked the preset
		return vars
	}, nil
}
