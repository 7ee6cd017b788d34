package nccl

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/rankenv"
)

const (
	sheet = " (AWS EFA cheat sheet)" // aws-samples/awsome-distributed-training, 1.architectures/efa-cheatsheet.md
	docs  = " (NCCL manual)"         // docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
)

var presets = []string{"auto", "efa", "efa-classic", "ib", "roce", "tcp", "none"}

// Vars gives the variables of a preset:
//
//   - auto is the preset of the node's fabric;
//   - efa is what libfabric 1.18 and aws-ofi-nccl 1.7, or later ones, want;
//   - efa-classic is the set that older guides give, for older software;
//   - ib and roce keep NCCL to the devices of that fabric;
//   - tcp keeps NCCL to sockets;
//   - none is empty.
//
// Any other preset is an error that lists these. A preset need not fit the fabric: a user may know better.
func Vars(preset string, f Facts) ([]rankenv.Var, error) {
	if preset == "auto" {
		preset = string(cmp.Or(f.Fabric, TCP))
	}
	p := maker{preset: preset}
	switch preset {
	case "efa":
		p.add("FI_EFA_USE_HUGE_PAGE", "0", "with huge pages a fork, as of a data loader, runs out of memory"+sheet)
		p.sockets(f)
	case "efa-classic":
		p.classic()
	case "ib", "roce":
		p.verbs(f)
		p.sockets(f)
	case "tcp":
		p.tcp(f)
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

// sockets names the interface for connections that are not RDMA: NCCL's bootstrap, and all of gloo. "=" asks NCCL for that name
// alone, where "eth1" would mean eth10 too; gloo takes whole names only.
func (m *maker) sockets(f Facts) {
	if f.Interface == "" {
		return
	}
	m.add("NCCL_SOCKET_IFNAME", "="+f.Interface, "the interface that has the node's address, and no other"+docs)
	m.add("GLOO_SOCKET_IFNAME", f.Interface, "the interface that has the node's address")
}

// verbs keeps NCCL off the devices of another network, such as storage's: by default it takes every device with an active port.
func (m *maker) verbs(f Facts) {
	if len(f.Others) > 0 && m.preset == string(f.Fabric) {
		m.add("NCCL_IB_HCA", "="+strings.Join(f.Devices, ","), "these devices are on the fabric, and "+
			strings.Join(f.Others, ", ")+" not"+docs)
	}
}

// tcp matters where there is a faster network that the user does not want.
func (m *maker) tcp(f Facts) {
	if len(f.Devices) > 0 {
		m.add("NCCL_NET", "Socket", "not the "+string(f.Fabric)+" devices of this node"+docs)
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
