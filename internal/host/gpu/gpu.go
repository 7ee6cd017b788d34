// Package gpu finds the GPUs of this machine and the processes that use them.
//
// NVML runs in a child process with a deadline, because a wedged driver puts its caller into an
// uninterruptible sleep, and a broken driver crashes its caller. The child is this same executable,
// started as a helper (internal/host/helper). It is either a probe, which prints the GPUs and
// exits, or the child of a [Meter]. The latter answers until the meter is closed, because opening
// NVML costs more than many readings. Importing the package touches no driver.
//
// Builds with cgo use go-nvml. They bind NVML's symbols lazily, so they do not start under
// LD_BIND_NOW=1. Builds with CGO_ENABLED=0 load NVML through purego and do start.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/golaunch/golaunch/placement"
)

// Device is a GPU, or one MIG instance of a GPU.
type Device struct {
	// Index is the place in PCI bus order (CUDA_DEVICE_ORDER=PCI_BUS_ID), from 0. Unlike CUDA's
	// index, it counts MIG instances: make an instance visible by its UUID.
	Index int
	// UUID is the driver's name for the device, "GPU-..." or "MIG-...".
	UUID string
	// Name is the product name, "NVIDIA H200".
	Name string
	// PCI is the address of the GPU as in sysfs, "0000:0f:00.0".
	PCI string
	// Memory is in bytes; 0 if unknown, as on GPUs that share the host's memory.
	Memory int64
	// MIG says that this is a MIG instance.
	MIG bool
	// Holders are the pids of processes with a compute context on the device, ascending, without
	// graphics processes. It is empty if unknown. In a container, they are the host's pids.
	Holders []int
	// Health is its condition, and Power its consumption.
	Health Health
	Power  Power
}

// List returns the GPUs that this process may use, in PCI bus order, or why there is none. It obeys
// an inherited CUDA_VISIBLE_DEVICES, see [Restrict]. It ignores NVIDIA_VISIBLE_DEVICES, which the
// container runtime has applied already, with the host's numbers.
//
// List fails if a driver does not answer within 10 s or before the deadline of ctx. It also fails
// if a GPU is lost, because CUDA then numbers the other GPUs unpredictably. Without a driver it
// costs a few system calls.
func List(ctx context.Context) (devices []Device, why string, err error) {
	all, why, err := Survey(ctx)
	devices, hidden := Visible(all)
	return devices, cmp.Or(why, hidden), err
}

// Survey does what List does, but ignores CUDA_VISIBLE_DEVICES. The error wraps [ErrLost] if a GPU
// is lost.
func Survey(ctx context.Context) (devices []Device, why string, err error) {
	if !present(os.Getenv("LD_LIBRARY_PATH")) {
		return nil, noLibrary, nil
	}
	r, err := probe(ctx)
	return r.Devices, r.Why, err
}

// Visible returns the devices that CUDA_VISIBLE_DEVICES leaves, or why it leaves none.
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

// ErrLost means that a GPU no longer answers its driver. Only a reset or a reboot brings it back.
var ErrLost = errors.New("a GPU is lost")

// Placement is the devices as package placement needs them, in the same order.
func Placement(devices []Device) []placement.GPU {
	gpus := make([]placement.GPU, len(devices))
	for i, d := range devices {
		gpus[i] = placement.GPU{Index: d.Index, UUID: d.UUID, PCI: d.PCI, Memory: d.Memory, HeldBy: heldBy(d.Holders)}
	}
	return gpus
}

// heldBy names one process and counts the others, so that the reason fits on one line.
func heldBy(pids []int) string {
	switch len(pids) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("pid %d", pids[0])
	}
	return fmt.Sprintf("pid %d and %d more", pids[0], len(pids)-1)
}
