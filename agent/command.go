package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/internal/process/proc"
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
		RASAddr: u.rasAddr(b), Proxied: s.work.Task.ProxyStore, Endpoint: s.endpointFor(o.World.LocalSize),
		Ports: s.work.Task.Ports,
	}
	if u.proxy.IsValid() {
		facts.ProxyAddr, facts.ProxyPort = u.proxy.Addr().String(), int(u.proxy.Port())
	}
	c := proc.Command{
		Path: s.work.Task.Command[0],
		Args: s.work.Task.arguments(b.LocalRank),
		Dir:  s.work.Task.Dir,
		Env:  u.env.Environ(facts),
		CPUs: on.CPUs.List(), Rights: s.rights(),
	}
	if !on.CPUs.Empty() && on.Memory != topology.Unknown {
		c.Memory = &on.Memory
	}
	if s.work.Task.Stdin && b.Rank == 0 {
		c.Stdin = os.Stdin
	}
	return c
}

// arguments are those of a rank.
func (t Task) arguments(localRank int) []string {
	n := strconv.Itoa(localRank)
	out := slices.Clone(t.Command)
	for i, arg := range out {
		if !t.Templates {
			out[i] = strings.ReplaceAll(arg, "${local_rank}", n)
		} else if i > 0 {
			out[i] = substitute(arg, n)
		}
	}
	return out
}

// macros are what Python's string.Template reads; of those in braces none but one means anything.
var macros = lazyregexp.New(`\$(\$|\w+|\{local_rank\})`)

// substitute is Template.safe_substitute, for a macro of torchrun's (torch/distributed/launcher/api.py): an unknown one stays.
func substitute(template, localRank string) string {
	return macros.Get().ReplaceAllStringFunc(template, func(macro string) string {
		switch macro {
		case "$$":
			return "$"
		case "$local_rank", "${local_rank}":
			return localRank
		}
		return macro
	})
}
