package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Thresholds.
const (
	// MinMemlock is the memory that NCCL registers on eight GPUs, with a margin; the usual default
	// limit is 64 KiB or 8 MiB.
	MinMemlock = 1 << 30
	// MinNoFile is the kernel's default hard limit (INR_OPEN_MAX in include/linux/fs.h).
	MinNoFile = 4096
	// MinNProc is 8 ranks with 16 data loaders of 32 threads each.
	MinNProc = 4096
	// MinShm is the --shm-size in NVIDIA's instructions for containers (NCCL User Guide,
	// Troubleshooting, Shared Memory).
	MinShm = 1 << 30
	// MinShmFree holds NCCL's segments of eight ranks, 10 MB for each pair.
	MinShmFree = 256 << 20
	// MinDisk and MinFiles are the bytes and files that logs and caches of one start take, with a
	// margin.
	MinDisk, MinFiles = 1 << 30, 1000
	// MaxClockError is the clock error from which on lines of two nodes' logs appear in the wrong
	// order.
	MaxClockError = time.Second
)

// checks has the checks in the order of their findings.
var checks = []func(Facts) []Finding{
	checkDriver, checkGPUs, checkNVLinks, checkXids, checkVisible, checkPeermem, checkPorts, checkMemlock, checkLimits, checkLoose, checkShm,
	checkDisks, checkClock,
}

// Check judges a machine.
func Check(f Facts) []Finding {
	var findings []Finding
	for _, check := range checks {
		findings = append(findings, check(f)...)
	}
	Worst(findings)
	return findings
}

func checkPeermem(f Facts) []Finding {
	verbs := slices.IndexFunc(f.RDMA, func(d RDMA) bool { return !d.EFA })
	if verbs < 0 || len(f.GPUs) == 0 || f.Peermem {
		return nil
	}
	return []Finding{noPeermem.find("%s cannot read and write GPU memory: nvidia_peermem is not loaded", f.RDMA[verbs].Name)}
}

func checkPorts(f Facts) (findings []Finding) {
	for _, d := range f.RDMA {
		if !slices.Contains(d.Ports, "ACTIVE") {
			findings = append(findings, hcaDown.find("%s has no active port, but %s", d.Name, states(d.Ports)))
		}
	}
	return findings
}

func states(ports []string) string {
	if len(ports) == 0 {
		return "none at all"
	}
	return strings.Join(ports, ", ")
}

func checkMemlock(f Facts) []Finding {
	if len(f.RDMA) == 0 || !below(f.Limits.Memlock, MinMemlock) || f.Limits.LocksAll {
		return nil
	}
	return []Finding{memlock.find("%s may be locked, and RDMA needs %s", bytes(f.Limits.Memlock), bytes(MinMemlock))}
}

// below reports whether a limit is known and too low.
func below(limit, least uint64) bool { return limit > 0 && limit < least }

func checkLimits(f Facts) (findings []Finding) {
	l := f.Limits
	if below(l.NoFile, MinNoFile) {
		findings = append(findings, noFile.find("a process may have %d files open at most", l.NoFile))
	}
	if below(l.NProc, MinNProc) {
		findings = append(findings, noProc.find("this user may have %d processes and threads", l.NProc))
	}
	if below(l.Pids, MinNProc) {
		findings = append(findings, noProc.find("this cgroup may have %d processes and threads (pids.max)", l.Pids))
	}
	return findings
}

func checkLoose(f Facts) []Finding {
	if f.Holds == nil || *f.Holds {
		return nil
	}
	return []Finding{noCgroup.find("golaunch cannot make a cgroup below its own, so processes of ranks may outlive a golaunch that is killed")}
}

func checkShm(f Facts) []Finding {
	switch {
	case !f.accelerated() || f.Shm.Size == 0:
	case f.Shm.Size < MinShm:
		return []Finding{shmSmall.find("/dev/shm has %s", bytes(f.Shm.Size))}
	case f.Shm.Free < MinShmFree:
		return []Finding{shmSmall.find("/dev/shm has %s free of %s", bytes(f.Shm.Free), bytes(f.Shm.Size))}
	}
	return nil
}

func checkDisks(f Facts) (findings []Finding) {
	for _, d := range f.Disks {
		switch {
		case d.Size > 0 && d.Free < MinDisk:
			findings = append(findings, diskFull.find("%s has %s free", d.Path, bytes(d.Free)))
		case d.Files > 0 && d.Unused < MinFiles:
			findings = append(findings, diskFull.find("%s has room for %d more files", d.Path, d.Unused))
		}
		if d.Path == f.Temp && d.NoExec && f.accelerated() {
			findings = append(findings, tmpNoExec.find("%s is mounted noexec", d.Path))
		}
	}
	return findings
}

func checkClock(f Facts) []Finding {
	switch {
	case len(f.RDMA) == 0: // a single machine has nothing to compare
	case f.Clock.Unsynchronized:
		return []Finding{clockOffset.find("nothing synchronizes the clock")}
	case f.Clock.Error >= MaxClockError:
		return []Finding{clockOffset.find("the clock may be off by %v", f.Clock.Error.Round(time.Millisecond))}
	}
	return nil
}

// bytes formats an amount of memory with few digits: "64 KiB".
func bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	amount := float64(n)
	for amount >= 1024 {
		amount, units = amount/1024, units[1:]
	}
	return fmt.Sprintf("%.4g %s", amount, units[0])
}
