// Package gpu finds the GPUs of this machine, and says who uses them.
//
// NVML runs in a child process with a deadline, because a wedged driver puts its caller into an uninterruptible sleep and a broken one
// takes it down. The child is this same executable, started again as a helper that never comes to main (internal/host/helper): one that prints
// the GPUs and exits, or a [Meter]'s, which answers again and again for as long as it is needed, since opening NVML costs
// more than many readings. Importing the package touches no driver.
//
// Builds with cgo use go-nvml. Its NVML symbols are bound lazily, so such a binary does not start under LD_BIND_NOW=1; builds
// with CGO_ENABLED=0 load NVML through purego and do.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/golaunch/golaunch/placement"
)

// Device is a GPU, or one MIG instance of a GPU that is split into them.
type Device struct {
	// Index is the place in PCI bus order (CUDA_DEVICE_ORDER=PCI_BUS_ID), from 0. Where GPUs are split it counts instances,
	// which CUDA does not: a MIG instance is made visible by its UUID.
	Index int
	// UUID is the driver's name for the device, "GPU-..." or "MIG-...".
	UUID string
	// Name is the product's name, "NVIDIA H200".
	Name string
	// PCI is the address of the GPU as sysfs writes it, "0000:0f:00.0".
	PCI string
	// Memory is in bytes; 0 where the driver does not tell, as on GPUs that share the host's memory.
	Memory int64
	// MIG says that this is an instance.
	MIG bool
	// Holders are the pids of the processes with a compute context on the device, ascending; graphics processes are not among
	// them. It is empty where the driver does not tell. In a container pids are those of the host.
	Holders []int
	// Health is what the driver says of it, and Power what it uses.
	Health Health
	Power  Power
}

// List returns the GPUs that this process may use, in PCI bus order, or says in why there is none. An inherited
// CUDA_VISIBLE_DEVICES counts as the user's or the scheduler's word: see [Restrict]. NVIDIA_VISIBLE_DEVICES does not, since the
// container runtime has acted on it, in the host's numbering.
//
// It is an error when there is a driver that does not answer, within 10 s or until the deadline of ctx, and when a GPU is lost:
// CUDA's numbering is then anyone's guess. On a machine without a driver List costs a few system calls.
func List(ctx context.Context) (devices []Device, why string, err error) {
	all, why, err := Survey(ctx)
	devices, hidden := Visible(all)
	return devices, cmp.Or(why, hidden), err
}

// Survey is List without regard to CUDA_VISIBLE_DEVICES. The error wraps [ErrLost] when a GPU is lost.
func Survey(ctx context.Context) (devices []Device, why string, err error) {
	if !present(os.Getenv("LD_LIBRARY_PATH")) {
		return nil, noLibrary, nil
	}
	r, err := probe(ctx)
	return r.Devices, r.Why, err
}

// Visible are the devices that CUDA_VISIBLE_DEVICES leaves; why says that it leaves none of them.
func Visible(all []Device) (devices []Device, why string) {
	value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if !set || len(all) == 0 {
		return all, ""
	}
	if devices = Restrict(all, value); len(devices) == 0 {
		why = fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q hides all %d GPUs", value, len(all))
	}
	return devices, why
}

// ErrLost says that a GPU no longer answers its driver, and nothing but a reset or a reboot brings it back.
var ErrLost = errors.New("a GPU is lost")

// Placement is what placement needs to know of the devices, in the same order.
func Placement(devices []Device) []placement.GPU {
	gpus := make([]placement.GPU, len(devices))
	for i, d := range devices {
		gpus[i] = placement.GPU{Index: d.Index, UUID: d.UUID, PCI: d.PCI, HeldBy: heldBy(d.Holders)}
	}
	return gpus
}

// heldBy names one process and counts the others, so that the reason of a busy node stays one line.
func heldBy(pids []int) string {
	switch len(pids) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("pid %d", pids[0])
	}
	return fmt.Sprintf("pid %d and %d more", pids[0], len(pids)-1)
}
