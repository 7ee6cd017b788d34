package health

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

// System is a machine to examine.
type System struct {
	// Root has /proc, /sys, /etc, /opt and /usr.
	Root fs.FS
	// Statfs returns the space in the file system of a path.
	Statfs func(path string) (Disk, error)
	// Limits returns the limits of this process that no file shows.
	Limits func() Limits
	Clock  func() Clock
	// KernelLog returns the end of the kernel's log; an error if this process may not read it.
	KernelLog func() (string, error)
	Getenv    func(name string) (value string, set bool)
	// Holds reports whether a cgroup holds everything that ranks start. A nil Holds means unknown.
	Holds func() bool
	// GPUs asks the driver, as [gpu.Survey] does. If nil, GPUs are not examined.
	GPUs func(context.Context) (devices []gpu.Device, why string, err error)
	// Temp is the directory of temporary files, and Dirs are others that jobs write to.
	Temp string
	Dirs []string
}

// Collect reads the facts. An unreadable fact is no error: a container shows less than its machine,
// and unknown facts are not judged. It starts no process but the GPU probe, and reads some twenty
// small files.
func Collect(ctx context.Context, s System) Facts {
	f := Facts{Clock: s.Clock(), Limits: s.limits(), Shm: s.disk("/dev/shm"), Temp: s.Temp, RDMA: s.rdma()}
	for _, dir := range append([]string{s.Temp}, s.Dirs...) {
		if dir != "" && !slices.ContainsFunc(f.Disks, func(d Disk) bool { return d.Path == dir }) {
			f.Disks = append(f.Disks, s.disk(dir))
		}
	}
	if s.Holds != nil {
		holds := s.Holds()
		f.Holds = &holds
	}
	if s.GPUs != nil {
		s.collectGPUs(ctx, &f)
	}
	f.Versions = s.versions(f.GPUs)
	return f
}

func (s System) collectGPUs(ctx context.Context, f *Facts) {
	f.Visible, f.Restricted = s.Getenv("CUDA_VISIBLE_DEVICES")
	f.OffBus = s.offBus()
	if f.GPUs, f.NoGPU, f.GPUErr = s.GPUs(ctx); !f.accelerated() {
		return
	}
	f.Peermem = s.peermem()
	log, err := s.KernelLog()
	f.Xids, f.LogHidden = ParseXids(log), err != nil
}

func (s System) disk(dir string) Disk {
	d, err := s.Statfs(dir)
	if err != nil {
		return Disk{Path: dir}
	}
	d.Path = dir
	return d
}

// text is a small file without its newline; empty if there is none.
func (s System) text(elem ...string) string {
	data, err := fs.ReadFile(s.Root, path.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (s System) dir(name string) []fs.DirEntry {
	entries, _ := fs.ReadDir(s.Root, name) // a missing directory has no entries
	return entries
}

func (s System) exists(name string) bool {
	_, err := fs.Stat(s.Root, name)
	return err == nil
}

// limits adds limits from files to the limits of this process.
func (s System) limits() Limits {
	l := s.Limits()
	l.LocksAll = capable(s.text("proc/self/status"))
	l.Pids, _ = strconv.ParseUint(s.text("sys/fs/cgroup/pids.max"), 10, 64) // "max", or no cgroup v2 namespace: 0
	return l
}

// capable reports whether /proc/self/status has CAP_IPC_LOCK, capability 14, in the effective set.
func capable(status string) bool {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && caps&(1<<14) != 0
}

// PCI vendors. All RDMA devices of amazon are EFA's.
const (
	amazon = "0x1d0f"
	nvidia = "0x10de"
)

func (s System) rdma() (devices []RDMA) {
	const class = "sys/class/infiniband"
	for _, e := range s.dir(class) {
		d := RDMA{Name: e.Name(), EFA: s.text(class, e.Name(), "device/vendor") == amazon}
		for _, p := range s.dir(path.Join(class, e.Name(), "ports")) {
			_, state, _ := strings.Cut(s.text(class, e.Name(), "ports", p.Name(), "state"), ": ") // "4: ACTIVE"
			d.Ports = append(d.Ports, state)
		}
		devices = append(devices, d)
	}
	return devices
}

// offBus finds GPUs whose configuration space reads as all ones: the bus returns this for a device
// that is gone. It skips sleeping GPUs, since reading would wake them.
func (s System) offBus() (addresses []string) {
	const bus = "sys/bus/pci/devices"
	for _, e := range s.dir(bus) {
		at := path.Join(bus, e.Name())
		if s.text(at, "vendor") != nvidia || !strings.HasPrefix(s.text(at, "class"), "0x03") || s.text(at, "power/runtime_status") == "suspended" {
			continue
		}
		if config, err := fs.ReadFile(s.Root, path.Join(at, "config")); err == nil && strings.HasPrefix(string(config), "\xff\xff\xff\xff") {
			addresses = append(addresses, e.Name())
		}
	}
	return addresses
}

// peermem reports whether NICs can reach GPU memory: through nvidia_peermem, its predecessor
// nv_peer_mem, or DMA-BUF, which NCCL uses with the open kernel modules on Linux 5.12 or later
// (NCCL's documentation, NCCL_DMABUF_ENABLE).
func (s System) peermem() bool {
	return s.exists("sys/module/nvidia_peermem") || s.exists("sys/module/nv_peer_mem") ||
		strings.Contains(s.text("proc/driver/nvidia/version"), "Open Kernel Module") && atLeast(s.text("proc/sys/kernel/osrelease"), 5, 12)
}

// atLeast compares the first two numbers of a kernel release, "6.8.0-45-generic".
func atLeast(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, err := strconv.Atoi(second)
	return err == nil && (a > major || a == major && b >= minor)
}
