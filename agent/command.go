package agent

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// command returns the command of one rank, with the rank's facts in the environment and arguments.
// The output may be nil.
func (a *attempt) command(b placement.Bundle, output *logs.Rank) proc.Command {
	j, task, on := a.job, a.job.work.Task, a.setup.bindings[b.LocalRank]
	facts := a.facts(b)
	facts.CPUs, facts.Bound, facts.Cores, facts.RASAddr = on.CPUs.String(), on.Why, on.Cores, a.rasAddress(b)
	c := proc.Command{
		Path: task.Command[0], Args: task.arguments(facts.LocalRank, a.order.World), Dir: task.Dir, CPUs: on.CPUs.List(), Rights: j.rights(),
	}
	if output != nil {
		facts.ErrorFile, facts.NoticeFile, facts.HeartbeatFile = output.ErrorFile(), output.NoticeFile(), output.HeartbeatFile()
		c.Stdout, c.Stderr = output.Stdout, output.Stderr
	}
	c.Env = a.setup.env.Environ(facts)
	if !on.CPUs.Empty() && on.Memory != topology.Unknown {
		c.Memory = &on.Memory
	}
	if task.Stdin && b.Rank == 0 {
		c.Stdin = os.Stdin
	}
	return c
}

// facts are what a rank learns about its part in the job.
func (a *attempt) facts(b placement.Bundle) rankenv.Facts {
	j, o, task := a.job, a.order, a.job.work.Task
	localRank, localSize, gpus := b.LocalRank, o.World.LocalSize, o.World.GPUs
	if o.World.Groups > 0 {
		first := o.Group.Bundles[0].LocalRank
		localRank, localSize = b.LocalRank-first, len(o.Group.Bundles)
		if gpus != nil {
			gpus = gpus[first : first+localSize]
		}
	}
	facts := rankenv.Facts{
		JobID: j.id, NodeName: o.Group.Node.Name,
		Rank: b.Rank - o.World.FirstRank, LocalRank: localRank, LocalWorldSize: localSize,
		WorldSize: o.World.WorldSize, NodeRank: o.Group.NodeRank - o.World.FirstNode, Nodes: o.World.Nodes,
		ReplicaGroups: o.World.Groups, ReplicaGroup: o.World.Group,
		MasterAddr: o.World.MasterAddr, MasterPort: o.World.MasterPort, StoreHosted: !task.Rank0Store, Proxied: task.ProxyStore,
		Attempt: o.Attempt, MaxRestarts: o.World.MaxRestarts,
		GPUs: gpus, GPU: b.GPU, PerGPU: task.PerGPU, Visibility: task.Visibility,
		Role: task.Role, RoleSize: o.World.RoleSize, RoleRank: o.World.RoleFirst + localRank,
		Endpoint: j.endpoint.For(o.World.LocalSize), Ports: task.Ports,
	}
	if b.GPU != nil && task.PerGPU > 1 {
		if at := find(j.node.session.Node.GPUs, b.GPU.Index); at >= 0 {
			facts.GPUMemory = j.node.session.Node.GPUs[at].Memory
		}
		facts.MPS = gpu.MPS(task.Env.Lookup(gpu.MPSDirectory))
	}
	if a.setup.lighthouse != nil {
		facts.Lighthouse = a.setup.lighthouse.URL()
	}
	place := b.Rank - o.Group.Bundles[0].Rank
	if a.setup.monitor != nil {
		facts.RankMonitor, facts.FTLauncher = a.setup.monitor.Path(place), a.setup.monitor.Launcher()
	}
	if a.setup.hyperPod != nil {
		facts.HyperPod = a.setup.hyperPod.Path(place)
	}
	if a.setup.proxy.IsValid() {
		facts.ProxyAddr, facts.ProxyPort = a.setup.proxy.Addr().String(), int(a.setup.proxy.Port())
	}
	return facts
}

// rasAddress returns an address for the RAS service of a rank's NCCL. It is empty if the rank has
// no GPU, or if no address is free.
func (a *attempt) rasAddress(b placement.Bundle) string {
	if b.GPU == nil {
		return ""
	}
	addr, err := ncclprobe.Address()
	if err != nil {
		a.job.node.Warn(fmt.Errorf("rank %d: %w; it keeps NCCL's own, which all ranks of a node share", b.Rank, err))
	}
	return addr
}

// arguments returns the arguments of a rank's command.
func (t Task) arguments(localRank int, w job.World) []string {
	n := strconv.Itoa(localRank)
	words := []string{"${local_rank}", n}
	if w.Groups > 0 {
		words = append(words, "${replica_group}", strconv.Itoa(w.Group), "${replica_groups}", strconv.Itoa(w.Groups))
	}
	replace := strings.NewReplacer(words...)
	out := slices.Clone(t.Command)
	for i, arg := range out {
		switch {
		case t.Templates && i > 0:
			out[i] = substitute(arg, n)
		case !t.Templates && strings.Contains(arg, "${"): // at its first use, a Replacer allocates tables of 2 kB
			out[i] = replace.Replace(arg)
		}
	}
	return out
}

// macros matches the macros of Python's string.Template. In braces it matches only local_rank.
var macros = lazyregexp.New(`\$(\$|\w+|\{local_rank\})`)

// substitute does what Template.safe_substitute does for torchrun's macro
// (torch/distributed/launcher/api.py). It leaves unknown macros unchanged.
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
