package nccl

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/rankenv"
)

// The sources of the rules.
const (
	// aws-samples/awsome-distributed-training, 1.architectures/efa-cheatsheet.md
	sheet = " (AWS EFA cheat sheet)"
	// docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
	docs = " (NCCL manual)"
)

var presets = []string{"auto", "efa", "efa-classic", "ib", "roce", "tcp", "none"}

// Vars returns the variables of a preset for a node with the facts f, in a job with the agreement
// a:
//
//   - auto is the preset of the agreed fabric;
//   - efa follows the versions of EFA's software: it sets nothing for older software if newer or
//     none is found;
//   - efa-classic is the set of older guides, for older software;
//   - ib and roce restrict NCCL to the devices of that fabric;
//   - tcp restricts NCCL to sockets;
//   - none is empty.
//
// The error for any other preset lists these presets. A preset need not fit the fabric, because the
// user may know the network better than Detect. NCCL_NET, NCCL_PROTO and FI_PROVIDER depend only on
// the agreement, so they are the same on every node.
func Vars(preset string, a Agreement, f Facts) ([]rankenv.Var, error) {
	if preset == "auto" {
		preset = string(cmp.Or(a.Fabric, TCP))
	}
	p := maker{preset: preset}
	switch preset {
	case "efa":
		p.efa(a, f.Versions)
		p.sockets(f)
	case "efa-classic":
		p.classic()
	case "ib", "roce":
		p.verbs(f)
		p.sockets(f)
	case "tcp":
		p.tcp(a)
		p.sockets(f)
	case "none":
	default:
		return nil, fmt.Errorf("unknown preset %q: want %s", preset, strings.Join(presets, ", "))
	}
	return p.vars, nil
}

type maker struct {
	preset string
	vars   []rankenv.Var
}

func (m *maker) add(name, value, why string) {
	m.vars = append(m.vars, rankenv.Var{
		Name: name, Value: value, Source: rankenv.Preset, Reason: "preset " + m.preset + ": " + why,
	})
}

// efa sets variables that a version of the plugin or of libfabric needs, but only if the version is
// known. Before Linux 5.15, libfabric needs FI_EFA_FORK_SAFE to make forks safe. The plugin has set
// it since 1.1.5, but some programs use libfabric without the plugin.
func (m *maker) efa(a Agreement, v Versions) {
	m.add("FI_EFA_USE_HUGE_PAGE", "0", "with huge pages a fork, as of a data loader, runs out of memory"+sheet)
	if older(a.Plugin, "1.6") {
		m.add("FI_PROVIDER", "efa", "aws-ofi-nccl "+a.Plugin+" is before 1.6"+sheet)
		m.add("NCCL_PROTO", "simple", "aws-ofi-nccl "+a.Plugin+" is before 1.6"+sheet)
	}
	// FI_EFA_USE_DEVICE_RDMA would end the process on machines whose EFA has no RDMA read.
	if readsRemotely(v.Machine) {
		switch {
		case older(a.Libfabric, "1.18"):
			m.add("FI_EFA_USE_DEVICE_RDMA", "1", "libfabric "+a.Libfabric+" is before 1.18"+sheet)
		case older(a.Plugin, "1.7"):
			m.add("FI_EFA_USE_DEVICE_RDMA", "1", "aws-ofi-nccl "+a.Plugin+" is before 1.7"+sheet)
		}
	}
	if older(v.Kernel, "5.15") {
		m.add("FI_EFA_FORK_SAFE", "1", "Linux "+v.Kernel+" is before 5.15"+sheet)
	}
}

// readsRemotely reports whether the EFA of an instance type has RDMA read. Among the instance types
// that older software knows, only p4 and p5 have it.
func readsRemotely(machine string) bool {
	return strings.HasPrefix(machine, "p4d") || strings.HasPrefix(machine, "p5")
}

// sockets sets the interface for connections without RDMA: those of NCCL's bootstrap, and all of
// gloo's. With "=", NCCL uses only the interface with this name; without "=", "eth1" would also
// mean eth10. gloo always takes the whole name.
func (m *maker) sockets(f Facts) {
	if f.Interface == "" {
		return
	}
	m.add("NCCL_SOCKET_IFNAME", "="+f.Interface, "the interface that has the node's address, and no other"+docs)
	m.add("GLOO_SOCKET_IFNAME", f.Interface, "the interface that has the node's address")
}

// verbs keeps NCCL off the devices of another network, such as one for storage. By default, NCCL
// uses every device with an active port.
func (m *maker) verbs(f Facts) {
	if len(f.Others) > 0 && m.preset == string(f.Fabric) {
		m.add("NCCL_IB_HCA", "="+strings.Join(f.Devices, ","), "these devices are on the fabric, and "+
			strings.Join(f.Others, ", ")+" not"+docs)
	}
}

// tcp keeps NCCL from using a faster network that not all nodes have, or that the user does not
// want.
func (m *maker) tcp(a Agreement) {
	if a.RDMA {
		m.add("NCCL_NET", "Socket", "not the RDMA devices that nodes of the job have"+docs)
	}
}

func (m *maker) classic() {
	m.add("FI_PROVIDER", "efa", "for aws-ofi-nccl up to 1.5"+sheet)
	m.add("FI_EFA_USE_DEVICE_RDMA", "1", "for libfabric before 1.18"+sheet)
	m.add("FI_EFA_FORK_SAFE", "1", "for Linux before 5.15"+sheet)
	m.add("NCCL_BUFFSIZE", "8388608", "8 MiB for large messages; newer aws-ofi-nccl tunes it itself")
	m.add("NCCL_P2P_NET_CHUNKSIZE", "524288", "512 KiB for large point-to-point messages")
	m.add("CUDA_DEVICE_MAX_CONNECTIONS", "1", "Megatron's overlap of tensor parallelism wants it; unset it for Megatron-FSDP")
	m.add("OMP_NUM_THREADS", "1", "ranks share the node's CPUs")
}
