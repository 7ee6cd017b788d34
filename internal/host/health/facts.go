package health

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// Facts is what [Check] needs to know of a machine.
type Facts struct {
	// GPUs are all that the driver shows; NoGPU says why there is none, and GPUErr why not although there is a driver.
	GPUs   []gpu.Device
	NoGPU  string
	GPUErr error
	// OffBus are the PCI addresses of NVIDIA GPUs that no longer answer there.
	OffBus []string
	// Visible is CUDA_VISIBLE_DEVICES, and Restricted that it is set.
	Visible    string
	Restricted bool
	// Xids are those of the kernel log since boot, and LogHidden says that it may not be read.
	Xids      []Xid
	LogHidden bool

	// RDMA are the RDMA devices. Peermem says that NICs can reach GPU memory, by nvidia_peermem or by DMA-BUF.
	RDMA    []RDMA
	Peermem bool

	Limits Limits
	// Holds says whether a cgroup holds what ranks start; nil means unknown.
	Holds *bool
	// Disks are the temporary directory, that for logs, and Shm is /dev/shm; of size 0 where they cannot be measured.
	Disks []Disk
	Shm   Disk
	// Temp says on which Disk temporary files are.
	Temp  string
	Clock Clock

	Versions Versions
}

// RDMA is one device of /sys/class/infiniband.
type RDMA struct {
	Name string
	// EFA says that it is one of AWS's, which need no nvidia_peermem.
	EFA bool
	// Ports are the states of its ports, "ACTIVE" or "DOWN".
	Ports []string
}

// Unlimited is the Limits value of what has no limit (RLIM_INFINITY).
const Unlimited = math.MaxUint64

// Limits are what ranks may use at most; 0 means unknown.
type Limits struct {
	// Memlock is in bytes, and LocksAll says that it does not bind this process, by CAP_IPC_LOCK.
	Memlock  uint64
	LocksAll bool
	// NoFile is the hard limit: every process may raise its own to that.
	NoFile uint64
	// NProc are processes and threads of this user, root without limit, and Pids those of this cgroup.
	NProc, Pids uint64
}

// Disk is what statfs(2) says of the file system of a path, in bytes and inodes.
type Disk struct {
	Path          string
	Size, Free    uint64
	Files, Unused uint64
	NoExec        bool
}

// Clock is what adjtimex(2) says.
type Clock struct {
	Unsynchronized bool
	// Error is the most by which the kernel thinks that it may be off; 0 is unknown.
	Error time.Duration
}

// Versions are of what should be the same on all nodes of a job, by the names below. What a node does not have is absent.
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

// accelerated says that the node has GPUs, or should have.
func (f Facts) accelerated() bool { return len(f.GPUs) > 0 || f.GPUErr != nil || len(f.OffBus) > 0 }

// devices are the GPUs that the job may use.
func (f Facts) devices() []gpu.Device {
	if !f.Restricted {
		return f.GPUs
	}
	return gpu.Restrict(f.GPUs, f.Visible)
}
