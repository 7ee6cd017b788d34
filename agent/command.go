package agent

import (
	"os"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/internal/topo"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// command is the process of one rank: the task with the rank's own facts in its environment and arguments.
func (u *unit) command(b placement.Bundle, errorFile, noticeFile, heartbeatFile string) proc.Command {
	s, o, on := u.share, u.order, u.bindings[b.LocalRank]
	facts := rankenv.Facts{
		JobID:    s.job,
		NodeName: o.Group.Node.Name,
		Rank:     b.Rank, LocalRank: b.LocalRank, LocalWorldSize: o.World.LocalSize,
		WorldSize: o.World.WorldSize, NodeRank: o.Group.NodeRank, Nodes: o.World.Nodes,
		MasterAddr: o.World.MasterAddr, MasterPort: o.World.MasterPort, StoreHosted: !s.work.Task.Rank0Store,
		Attempt: o.Attempt, MaxRestarts: o.World.MaxRestarts,
		GPUs: o.World.GPUs, GPU: b.GPU, Visibility: s.work.Task.Visibility,
		CPUs: on.CPUs.String(), Bound: on.Why, Cores: on.Cores,
		Role: s.work.Task.Role, RoleSize: o.World.RoleSize, RoleRank: o.World.RoleFirst + b.LocalRank, ErrorFile: errorFile, NoticeFile: noticeFile, HeartbeatFile: heartbeatFile,
		RASAddr: u.rasAddr(b),
	}
	c := proc.Command{
		Path: s.work.Task.Command[0],
		Args: localRank(s.work.Task.Command, b.LocalRank),
		Dir:  s.work.Task.Dir,
		Env:  u.env.Environ(facts),
		CPUs: on.CPUs.List(), Rights: s.rights(),
	}
	if !on.CPUs.Empty() && on.Memory != topo.Unknown {
		c.Memory = &on.Memory
	}
	if s.work.Task.Stdin && b.Rank == 0 {
		c.Stdin = os.Stdin
	}
	return c
}

// localRank puts the local rank in the place of "${local_rank}" in the arguments, as torchrun does (torch/distributed/run.py).
func localRank(args []string, n int) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = strings.ReplaceAll(arg, "${local_rank}", strconv.Itoa(n))
	}
	return out
}
