package health

import (
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// Facts are the facts about a machine that [Check] judges.
type Facts struct {
	// GPUs are all GPUs that the driver shows. NoGPU says why there is none, and GPUErr is the
	// driver's error.
	GPUs   []gpu.Device
	NoGPU  string
	GPUErr error
	// OffBus are the PCI addresses of NVIDIA GPUs that no longer answer on the bus.
	OffBus []string
	// Visible is CUDA_VISIBLE_DEVICES, and Restricted says that it is set.
	Visible    string
	Restricted bool
	// Xids are the Xids in the kernel log since boot. LogHidden says that this process may not read
	// the log.
	Xids      []Xid
	LogHidden bool

	// Peermem says that NICs can reach GPU memory, by nvidia_peermem or DMA-BUF.
	RDMA    []RDMA
	Peermem bool

	Limits Limits
	// Holds says whether a cgroup holds everything that ranks start; nil means unknown.
	Holds *bool
	// Disks are the disks of temporary files and of logs, and Shm is /dev/shm. An unknown disk has
	// size 0.
	Disks []Disk
	Shm   Disk
	// Temp is the Disk of temporary files.
	Temp  string
	Clock Clock

	Versions Versions
}

// RDMA is a device in /sys/class/infiniband.
type RDMA struct {
	Name string
	// EFA says that this is a device of AWS, which needs no nvidia_peermem.
	EFA bool
	// Ports are the states of the device's ports, "ACTIVE" or "DOWN".
	Ports []string
}

// Limits bound what ranks may use; 0 means unknown, and the largest number means no limit.
type Limits struct {
	// Memlock is in bytes. LocksAll says that CAP_IPC_LOCK lifts this limit.
	Memlock  uint64
	LocksAll bool
	// NoFile is the hard limit, to which every process may raise its own limit.
	NoFile uint64
	// NProc limits the processes and threads of this user, and is unlimited for root. Pids limits
	// the processes and threads of this cgroup.
	NProc, Pids uint64
}

// Disk is the answer of statfs(2) for the file system of a path, in bytes and inodes.
type Disk struct {
	Path          string
	Size, Free    uint64
	Files, Unused uint64
	NoExec        bool
}

// Clock is the answer of adjtimex(2).
type Clock struct {
	Unsynchronized bool
	// Error is the kernel's estimate of its maximum error; 0 is unknown.
	Error time.Duration
}

// Versions has the versions that should be the same on all nodes of a job. A version that a node
// lacks is absent.
type Versions map[string]string

// The names of Versions.
const (
	GPUs      = "gpus"
	Kernel    = "kernel"
	Driver    = "driver"
	NCCL      = "nccl"
	Libfabric = "libfabric"
	EFA       = "efa"
	Python    = "python"
)

// accelerated reports whether the node has GPUs, or should have.
func (f Facts) accelerated() bool { return len(f.GPUs) > 0 || f.GPUErr != nil || len(f.OffBus) > 0 }

// devices are the GPUs that the job may use.
func (f Facts) devices() []gpu.Device {
	if !f.Restricted {
		return f.GPUs
	}
	return gpu.Restrict(f.GPUs, f.Visible)
}
