package health

import (
	"fmt"
	"slices"
	"strings"
)

// Summary says what was examined, beside the findings.
type Summary struct {
	// Fine names the parts without problems.
	Fine []string
	// Skipped names the parts that were not examined, with the reason.
	Skipped []string
}

// Summarize returns the summary for the same facts as [Check].
func Summarize(f Facts, findings []Finding) (s Summary) {
	gpus, rdma := len(f.GPUs) > 0, len(f.RDMA) > 0
	for _, area := range []struct {
		name  string
		there bool
		with  []Warnable
	}{
		{"GPUs (" + f.Versions[GPUs] + ")", gpus, []Warnable{
			gpuDriver, gpuLost, gpuECC, gpuRowRemap, gpuRowPending, gpuRecovery, gpuThrottled, gpuPCIeWidth, fabricManager, cudaVisibleDevices,
		}},
		{"NVLinks", gpus && slices.ContainsFunc(f.GPUs, linked), []Warnable{nvLinkDown}},
		{"Xids", gpus && !f.LogHidden, []Warnable{gpuXid}},
		{fmt.Sprintf("RDMA (%d devices)", len(f.RDMA)), rdma, []Warnable{hcaDown}},
		{"GPU memory for RDMA", gpus && rdma, []Warnable{noPeermem}},
		{"locked memory", rdma, []Warnable{memlock}},
		{"open files", f.Limits.NoFile > 0, []Warnable{noFile}},
		{"processes", true, []Warnable{noProc}},
		{"cgroup", f.Holds != nil, []Warnable{noCgroup}},
		{"/dev/shm", f.accelerated() && f.Shm.Size > 0, []Warnable{shmSmall}},
		{"disk space (" + paths(f.Disks) + ")", len(f.Disks) > 0, []Warnable{diskFull, tmpNoExec}},
		{"clock", rdma, []Warnable{clockOffset}},
	} {
		if area.there && !slices.ContainsFunc(findings, func(f Finding) bool { return slices.Contains(area.with, f.Warnable) }) {
			s.Fine = append(s.Fine, area.name)
		}
	}
	if f.NoGPU != "" {
		s.Skipped = append(s.Skipped, "GPUs ("+f.NoGPU+")")
	}
	if f.LogHidden {
		s.Skipped = append(s.Skipped, "Xids (the kernel log is for root)")
	}
	if !rdma {
		s.Skipped = append(s.Skipped, "RDMA (no device)")
	}
	if !f.accelerated() {
		s.Skipped = append(s.Skipped, "/dev/shm (for GPUs)")
	}
	return s
}

func paths(disks []Disk) string {
	var names []string
	for _, d := range disks {
		names = append(names, d.Path)
	}
	return strings.Join(names, ", ")
}
