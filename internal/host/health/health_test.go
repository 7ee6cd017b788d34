package health

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// cases spoil one machine each, and have the resulting findings: the code and the text of each.
var cases = []struct {
	name    string
	machine func() (System, fstest.MapFS)
	spoil   func(*System, fstest.MapFS)
	want    []string
}{
	{"p5", p5, nil, nil},
	{"laptop", laptop, nil, nil},
	{"DGX with a port down", dgx, nil, []string{"hca-down: mlx5_1 has no active port, but DOWN"}},
	{"container", container, nil, []string{"memlock: 64 KiB may be locked, and RDMA needs 1 GiB", "shm-small: /dev/shm has 64 MiB"}},

	{"wedged driver", p5, func(s *System, _ fstest.MapFS) {
		s.GPUs = func(context.Context) ([]gpu.Device, string, error) { return nil, "", errWedged }
	}, []string{"gpu-driver: the NVIDIA driver did not answer within 10s"}},
	{"lost GPU", p5, func(s *System, _ fstest.MapFS) {
		s.GPUs = func(context.Context) ([]gpu.Device, string, error) {
			return nil, "", fmt.Errorf("NVIDIA driver: GPU index 1 of 8: %w; hint: take the node out", gpu.ErrLost)
		}
	}, []string{"gpu-lost: NVIDIA driver: GPU index 1 of 8: a GPU is lost"}},
	{"GPU off the bus", p5, func(_ *System, root fstest.MapFS) {
		root["sys/bus/pci/devices/0000:64:00.0/config"] = file(strings.Repeat("\xff", 64))
	}, []string{"gpu-lost: the GPU at 0000:64:00.0 has fallen off the PCI bus"}},
	{"sleeping GPU of a laptop", laptop, func(_ *System, root fstest.MapFS) {
		root["sys/bus/pci/devices/0000:01:00.0/vendor"] = file("0x10de\n")
		root["sys/bus/pci/devices/0000:01:00.0/class"] = file("0x030000\n")
		root["sys/bus/pci/devices/0000:01:00.0/config"] = file("\xff\xff\xff\xff")
		root["sys/bus/pci/devices/0000:01:00.0/power/runtime_status"] = file("suspended\n")
	}, nil},
	{"audio function of a lost GPU", laptop, func(_ *System, root fstest.MapFS) {
		root["sys/bus/pci/devices/0000:01:00.1/vendor"] = file("0x10de\n")
		root["sys/bus/pci/devices/0000:01:00.1/class"] = file("0x040300\n")
		root["sys/bus/pci/devices/0000:01:00.1/config"] = file("\xff\xff\xff\xff")
	}, nil},

	{"memory errors", p5, ill(func(h *gpu.Health) { h.Uncorrected = 2 }), []string{
		"gpu-ecc: GPU 3 (0000:40:00.0) has had 2 uncorrected memory errors since its driver was loaded",
	}},
	{"remap failure", p5, ill(func(h *gpu.Health) { h.RemapFailed = true }), []string{
		"gpu-row-remap: GPU 3 (0000:40:00.0) could not remap a bad row of memory",
	}},
	{"remap pending", p5, ill(func(h *gpu.Health) { h.RemapPending = true }), []string{
		"gpu-row-pending: GPU 3 (0000:40:00.0) has a bad row of memory in use until its next reset",
	}},
	{"recovery, after a warning", p5, ill(func(h *gpu.Health) { h.Recovery, h.Lanes = "node reboot", 8 }), []string{
		"gpu-recovery: GPU 3 (0000:40:00.0) wants this: node reboot", "gpu-pcie-width: GPU 3 (0000:40:00.0) has 8 of 16 PCIe lanes",
	}},
	{"heat", p5, ill(func(h *gpu.Health) { h.Throttled = []string{"power brake", "hardware slowdown"} }), []string{
		"gpu-throttled: GPU 3 (0000:40:00.0) is slowed down: power brake, hardware slowdown",
	}},
	{"fabric", p5, ill(func(h *gpu.Health) { h.Fabric = "in progress" }), []string{
		"fabric-manager: GPU 3 (0000:40:00.0) is not in the NVSwitch fabric: registration in progress",
	}},
	{"NVLinks down", p5, ill(func(h *gpu.Health) { h.DownLinks = []int{4, 17} }), []string{
		"nvlink-down: GPU 3 (0000:40:00.0) has 2 of 18 NVLinks down: 4, 17",
	}},
	{"NVLinks down on all alike", p5, func(s *System, _ fstest.MapFS) {
		gpus := hopper(2)
		gpus[0].Health.DownLinks, gpus[1].Health.DownLinks = []int{0, 1}, []int{2, 3}
		s.GPUs = func(context.Context) ([]gpu.Device, string, error) { return gpus, "", nil }
	}, nil},
	{"two instances of an ill GPU", p5, func(s *System, _ fstest.MapFS) {
		gpus := hopper(2)
		gpus[1] = gpus[0]
		gpus[0].Health.Uncorrected, gpus[1].Health.Uncorrected = 1, 1
		s.GPUs = func(context.Context) ([]gpu.Device, string, error) { return gpus, "", nil }
	}, []string{"gpu-ecc: GPU 0 (0000:10:00.0) has had 1 uncorrected memory errors since its driver was loaded"}},
	{"an ill GPU that is not ours", p5, func(s *System, root fstest.MapFS) {
		ill(func(h *gpu.Health) { h.Uncorrected = 2; h.DownLinks = []int{1} })(s, root)
		s.Getenv = environment("CUDA_VISIBLE_DEVICES", "0,1,2")
	}, nil},
	{"Xid", p5, func(s *System, _ fstest.MapFS) {
		s.KernelLog = func() (string, error) {
			return "[    1.0] boot\n<4>[ 9.1] NVRM: Xid (PCI:0000:40:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n" +
				"[ 9.2] NVRM: Xid (PCI:0000:40:00): 79, again\n[ 9.3] NVRM: Xid (PCI:0000:50:00): 45, pid=1, Ch 8\n", nil
		}
	}, []string{"gpu-xid: Xid 79 of the GPU at 0000:40:00 since boot"}},

	{"no such GPU", p5, visible("0,9,1"), []string{
		`cuda-visible-devices: CUDA_VISIBLE_DEVICES="0,9,1" names 9, which is not one GPU of this machine: 1 of 8 are left`,
	}},
	{"GPU twice", p5, visible("0, 1,0"), []string{
		`cuda-visible-devices: CUDA_VISIBLE_DEVICES="0, 1,0" names 0 twice: no GPU is left`,
	}},
	{"GPUs left out on purpose", p5, visible("3,-1,99"), nil},
	{"no GPU on purpose", p5, visible("NoDevFiles"), nil},
	{"all GPUs by name", p5, visible("GPU-b,GPU-a"), nil},

	{"no peermem", dgx, func(_ *System, root fstest.MapFS) {
		delete(root, "sys/module/nvidia_peermem/uevent")
		root["sys/class/infiniband/mlx5_1/ports/1/state"] = file("4: ACTIVE\n")
	}, []string{"no-peermem: mlx5_0 cannot read and write GPU memory: nvidia_peermem is not loaded"}},
	{"DMA-BUF", dgx, func(_ *System, root fstest.MapFS) {
		delete(root, "sys/module/nvidia_peermem/uevent")
		root["sys/class/infiniband/mlx5_1/ports/1/state"] = file("4: ACTIVE\n")
		root["proc/driver/nvidia/version"] = file("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10\n")
	}, nil},
	{"DMA-BUF on an old kernel", dgx, func(_ *System, root fstest.MapFS) {
		delete(root, "sys/module/nvidia_peermem/uevent")
		delete(root, "sys/class/infiniband/mlx5_1/ports/1/state")
		delete(root, "sys/class/infiniband/mlx5_1/device/vendor")
		root["proc/driver/nvidia/version"] = file("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10\n")
		root["proc/sys/kernel/osrelease"] = file("5.4.0-generic\n")
	}, []string{"no-peermem: mlx5_0 cannot read and write GPU memory: nvidia_peermem is not loaded"}},
	{"HCA without ports", dgx, func(_ *System, root fstest.MapFS) {
		delete(root, "sys/class/infiniband/mlx5_1/ports/1/state")
	}, []string{"hca-down: mlx5_1 has no active port, but none at all"}},
	{"locked memory with CAP_IPC_LOCK", container, func(s *System, root fstest.MapFS) {
		root["proc/self/status"] = file("CapInh:\t0\nCapEff:\t0000000000004000\n")
		s.Statfs = func(string) (Disk, error) { return roomy, nil }
	}, nil},

	{"few files", laptop, limited(Limits{NoFile: 1024}), []string{"nofile: a process may have 1024 files open at most"}},
	{"few processes", laptop, limited(Limits{NProc: 100}), []string{"nproc: this user may have 100 processes and threads"}},
	{"small cgroup", laptop, func(_ *System, root fstest.MapFS) { root["sys/fs/cgroup/pids.max"] = file("512\n") }, []string{
		"nproc: this cgroup may have 512 processes and threads (pids.max)",
	}},
	{"no cgroup", laptop, func(s *System, _ fstest.MapFS) { s.Holds = func() bool { return false } }, []string{
		"no-cgroup: golaunch cannot make a cgroup below its own, so processes of ranks may outlive a golaunch that is killed",
	}},
	{"a cgroup", laptop, func(s *System, _ fstest.MapFS) { s.Holds = func() bool { return true } }, nil},
	{"limits unknown", laptop, limited(Limits{}), nil},
	{"full /dev/shm", p5, disk("/dev/shm", Disk{Size: 4 << 30, Free: 9 << 20}), []string{"shm-small: /dev/shm has 9 MiB free of 4 GiB"}},
	{"full disk", laptop, disk("/logs", Disk{Size: 1 << 40, Free: 1 << 20}), []string{"disk-full: /logs has 1 MiB free"}},
	{"no inodes", p5, disk("/tmp", Disk{Size: 1 << 40, Free: 1 << 39, Files: 1 << 20, Unused: 7}), []string{
		"disk-full: /tmp has room for 7 more files",
	}},
	{"unknown disk", p5, func(s *System, _ fstest.MapFS) {
		s.Statfs = func(string) (Disk, error) { return Disk{}, os.ErrNotExist }
	}, nil},
	{"noexec", p5, disk("/tmp", Disk{Size: 1 << 40, Free: 1 << 39, NoExec: true}), []string{"tmp-noexec: /tmp is mounted noexec"}},
	{"free clock", p5, func(s *System, _ fstest.MapFS) { s.Clock = func() Clock { return Clock{Unsynchronized: true} } }, []string{
		"clock-offset: nothing synchronizes the clock",
	}},
	{"uncertain clock", p5, func(s *System, _ fstest.MapFS) {
		s.Clock = func() Clock { return Clock{Error: 1500 * time.Millisecond} }
	}, []string{
		"clock-offset: the clock may be off by 1.5s",
	}},
}

func ill(with func(*gpu.Health)) func(*System, fstest.MapFS) {
	return func(s *System, _ fstest.MapFS) {
		gpus := hopper(8)
		with(&gpus[3].Health)
		s.GPUs = func(context.Context) ([]gpu.Device, string, error) { return gpus, "", nil }
	}
}

func environment(name, value string) func(string) (string, bool) {
	return func(asked string) (string, bool) {
		if asked != name {
			return "", false
		}
		return value, true
	}
}

func visible(value string) func(*System, fstest.MapFS) {
	return func(s *System, _ fstest.MapFS) { s.Getenv = environment("CUDA_VISIBLE_DEVICES", value) }
}

func limited(l Limits) func(*System, fstest.MapFS) {
	return func(s *System, _ fstest.MapFS) { s.Limits = func() Limits { return l } }
}

func disk(path string, d Disk) func(*System, fstest.MapFS) {
	return func(s *System, _ fstest.MapFS) {
		s.Statfs = func(asked string) (Disk, error) {
			if asked == path {
				return d, nil
			}
			return roomy, nil
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range cases {
		s, root := c.machine()
		if c.spoil != nil {
			c.spoil(&s, root)
		}
		var got []string
		for _, f := range Check(Collect(t.Context(), s)) {
			got = append(got, f.Warnable.Code+": "+f.Text)
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: found\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// skews are differences between two nodes, by the code that they cause.
var skews = map[string]string{
	"gpu-skew": GPUs, "driver-skew": Driver, "kernel-skew": Kernel, "nccl-skew": NCCL, "libfabric-skew": Libfabric, "python-skew": Python,
}

// Every Warnable is found by a test, has a unique code, and has all texts.
func TestTable(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range cases {
		for _, text := range c.want {
			code, _, _ := strings.Cut(text, ":")
			tested[code] = true
		}
	}
	for code, name := range skews {
		found := Skew(map[string]Versions{"a": {name: "1"}, "b": {name: "2"}})
		if len(found) != 1 || found[0].Warnable.Code != code {
			t.Errorf("two nodes that differ in %s: %v, want %s", name, found, code)
		}
		tested[code] = true
	}
	for _, w := range []Warnable{fabricSilent, fabricNCCL, fabricNode, fabricNIC, fabricSuspect, fabricPath, fabricSlow} {
		tested[w.Code] = true // by cmd/golaunch/internal/fabric
	}
	seen := map[string]bool{}
	for _, w := range Table {
		if !tested[w.Code] {
			t.Errorf("no test finds %s", w.Code)
		}
		if seen[w.Code] {
			t.Errorf("two have the code %s", w.Code)
		}
		seen[w.Code] = true
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(w.Code) {
			t.Errorf("code %q: lower case words with - between them", w.Code)
		}
		if w.Title == "" || w.When == "" || w.Remedy == "" || w.Severity != Error && w.Severity != Warning {
			t.Errorf("%s lacks something: %+v", w.Code, w)
		}
	}
	for code := range tested {
		if !seen[code] {
			t.Errorf("%s is found, but not in the table", code)
		}
	}
}

// docs/doctor.md has a row for each Warnable, in the words of Table.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, w := range Table {
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", w.Code, w.Severity, w.Title, w.When, w.Remedy)
	}
	if !strings.Contains(string(text), "| --- | --- | --- | --- | --- |\n"+rows.String()+"\n") {
		t.Errorf("docs/doctor.md does not have just these rows:\n%s", rows.String())
	}
}

func TestFindingString(t *testing.T) {
	f := gpuRowRemap.find("GPU 3 is bad")
	f.Node = "n17"
	if got, want := f.String(), "n17: GPU 3 is bad; replace the GPU [gpu-row-remap]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
