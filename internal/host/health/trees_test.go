package health

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"testing/fstest"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func link(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }

// fakePython is the target of the link below.
const fakePython = "usr/bin/python3.11"

// p5 is AWS's p5 instance: eight H100, EFA, and no problem.
func p5() (System, fstest.MapFS) {
	root := fstest.MapFS{
		"proc/self/status":                     file("Name:\tgolaunch\nCapInh:\t0000000000000000\nCapEff:\t0000000000000000\nSeccomp:\t0\n"),
		"proc/sys/kernel/osrelease":            file("6.8.0-1024-aws\n"),
		"proc/driver/nvidia/version":           file("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\nGCC version:  gcc 12\n"),
		"sys/fs/cgroup/pids.max":               file("max\n"),
		"opt/amazon/efa/lib/libfabric.so.1":    link("libfabric.so.1.25.0"),
		"opt/amazon/efa/lib/libfabric.so.1.25": file(""),
		"opt/amazon/efa_installed_packages":    file("# EFA installer version: 1.38.0\n# Debug packages installed: no\n"),
		"usr/lib64/libnccl.so.2":               link("libnccl.so.2.25.1"),
		"usr/lib64/libnccl.so.2.25.1":          file(""),
		"usr/bin/python3":                      link("python3.11"),
		fakePython:                             file(""),
	}
	for _, name := range []string{"rdmap79s0", "rdmap80s0"} {
		root["sys/class/infiniband/"+name+"/device/vendor"] = file("0x1d0f\n")
		root["sys/class/infiniband/"+name+"/ports/1/state"] = file("4: ACTIVE\n")
	}
	for _, address := range []string{"0000:53:00.0", "0000:64:00.0"} {
		root["sys/bus/pci/devices/"+address+"/vendor"] = file("0x10de\n")
		root["sys/bus/pci/devices/"+address+"/class"] = file("0x030200\n")
		root["sys/bus/pci/devices/"+address+"/config"] = file("\xde\x10\x30\x23")
	}
	return system(root, hopper(8)), root
}

// dgx is a machine with InfiniBand, where one of two HCAs has lost its link.
func dgx() (System, fstest.MapFS) {
	root := fstest.MapFS{
		"proc/self/status":                 file("Name:\tgolaunch\nCapEff:\t000001ffffffffff\n"),
		"proc/sys/kernel/osrelease":        file("5.15.0-1053-nvidia\n"),
		"proc/driver/nvidia/version":       file("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"),
		"sys/module/nvidia_peermem/uevent": file(""),
	}
	for name, state := range map[string]string{"mlx5_0": "4: ACTIVE\n", "mlx5_1": "1: DOWN\n"} {
		root["sys/class/infiniband/"+name+"/device/vendor"] = file("0x15b3\n")
		root["sys/class/infiniband/"+name+"/ports/1/state"] = file(state)
	}
	return system(root, hopper(8)), root
}

// laptop has no special hardware and no raised limits, and its clock is not synchronized.
func laptop() (System, fstest.MapFS) {
	root := fstest.MapFS{
		"proc/self/status":          file("Name:\tgolaunch\nCapEff:\t0000000000000000\n"),
		"proc/sys/kernel/osrelease": file("6.12.1-arch1-1\n"),
	}
	s := system(root, nil)
	s.Limits = func() Limits { return Limits{Memlock: 8 << 20, NoFile: 524288, NProc: 62842} }
	s.Clock = func() Clock { return Clock{Unsynchronized: true} }
	s.Statfs = func(string) (Disk, error) { return Disk{Size: 8 << 30, Free: 4 << 30, NoExec: true}, nil }
	return s, root
}

// container is docker run --gpus all on a DGX, with Docker's defaults.
func container() (System, fstest.MapFS) {
	s, root := dgx()
	root["proc/self/status"] = file("Name:\tgolaunch\nCapEff:\t00000000a80425fb\n")
	root["sys/class/infiniband/mlx5_1/ports/1/state"] = file("4: ACTIVE\n")
	s.Limits = func() Limits { return Limits{Memlock: 64 << 10, NoFile: 1 << 20} }
	s.Statfs = func(path string) (Disk, error) {
		if path == "/dev/shm" {
			return Disk{Size: 64 << 20, Free: 64 << 20}, nil
		}
		return roomy, nil
	}
	return s, root
}

var roomy = Disk{Size: 1 << 40, Free: 1 << 39, Files: 1 << 20, Unused: 1 << 19}

func system(root fstest.MapFS, gpus []gpu.Device) System {
	return System{
		Root:   root,
		Statfs: func(string) (Disk, error) { return roomy, nil },
		Limits: func() Limits {
			return Limits{Memlock: math.MaxUint64, NoFile: 1 << 20, NProc: math.MaxUint64}
		},
		Clock:     func() Clock { return Clock{Error: 30 * time.Millisecond} },
		KernelLog: func() (string, error) { return "", nil },
		Getenv: func(name string) (string, bool) {
			if name == "PATH" {
				return "relative:/usr/local/bin:/usr/bin", true
			}
			return "", false
		},
		GPUs: func(context.Context) ([]gpu.Device, string, error) { return gpus, noGPU(gpus), nil },
		Temp: "/tmp", Dirs: []string{"/logs", "", "/tmp"},
	}
}

func noGPU(gpus []gpu.Device) string {
	if len(gpus) == 0 {
		return "no NVIDIA driver"
	}
	return ""
}

// hopper is n healthy GPUs with 18 NVLinks.
func hopper(n int) (gpus []gpu.Device) {
	for i := range n {
		gpus = append(gpus, gpu.Device{
			Index: i, UUID: "GPU-" + string(rune('a'+i)), Name: "NVIDIA H100", PCI: "0000:" + string(rune('1'+i)) + "0:00.0",
			Health: gpu.Health{Lanes: 16, MaxLanes: 16, Links: 18},
		})
	}
	return gpus
}

var errWedged = errors.New("the NVIDIA driver did not answer within 10s; hint: run nvidia-smi")
