package health

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/gpu"
)

func checkDriver(f Facts) (findings []Finding) {
	for _, address := range f.OffBus {
		findings = append(findings, gpuLost.find("the GPU at %s has fallen off the PCI bus", address))
	}
	if f.GPUErr != nil {
		findings = append(findings, DriverError(f.GPUErr))
	}
	return findings
}

// DriverError is the finding for an error of [gpu.Survey].
func DriverError(err error) Finding {
	text, _, _ := strings.Cut(err.Error(), "; hint: ")
	if errors.Is(err, gpu.ErrLost) {
		return gpuLost.find("%s", text)
	}
	return gpuDriver.find("%s", text)
}

func checkGPUs(f Facts) (findings []Finding) {
	seen := map[string]bool{}
	for _, d := range f.devices() {
		if seen[d.PCI] {
			continue // another instance of the same GPU
		}
		seen[d.PCI] = true
		findings = append(findings, checkGPU(d)...)
	}
	return findings
}

func checkGPU(d gpu.Device) (findings []Finding) {
	h, name := d.Health, label(d)
	add := func(is bool, w Warnable, format string, args ...any) {
		if is {
			findings = append(findings, w.find("%s", name+fmt.Sprintf(format, args...)))
		}
	}
	add(h.Recovery != "", gpuRecovery, " wants this: %s", h.Recovery)
	add(h.Uncorrected > 0, gpuECC, " has had %d uncorrected memory errors since its driver was loaded", h.Uncorrected)
	add(h.RemapFailed, gpuRowRemap, " could not remap a bad row of memory")
	add(h.RemapPending, gpuRowPending, " has a bad row of memory in use until its next reset")
	add(h.Fabric != "", fabricManager, " is not in the NVSwitch fabric: registration %s", h.Fabric)
	add(len(h.Throttled) > 0, gpuThrottled, " is slowed down: %s", strings.Join(h.Throttled, ", "))
	add(h.Lanes < h.MaxLanes, gpuPCIeWidth, " has %d of %d PCIe lanes", h.Lanes, h.MaxLanes)
	return findings
}

func label(d gpu.Device) string { return fmt.Sprintf("GPU %d (%s)", d.Index, d.PCI) }

// checkNVLinks reports a missing link only if another GPU of the same kind has more links: bridges
// leave the same links free on all GPUs.
func checkNVLinks(f Facts) (findings []Finding) {
	least := map[string]int{}
	for _, d := range f.GPUs {
		down := len(d.Health.DownLinks)
		if n, known := least[d.Name]; !known || down < n {
			least[d.Name] = down
		}
	}
	seen := map[string]bool{}
	for _, d := range f.devices() {
		if len(d.Health.DownLinks) > least[d.Name] && !seen[d.PCI] {
			findings = append(findings, nvLinkDown.find("%s has %d of %d NVLinks down: %s", label(d),
				len(d.Health.DownLinks), d.Health.Links, numbers(d.Health.DownLinks)))
		}
		seen[d.PCI] = true
	}
	return findings
}

func numbers(list []int) string {
	var texts []string
	for _, n := range list {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ", ")
}

// fatal are the Xids of hardware faults, or of a driver that needs a reset. NVIDIA's health checks
// and catalogue advise to drain the node for them. The Xids of a program's own faults (13, 31, 43,
// 45, 68, 109) follow the end of every job.
var fatal = []int{46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143}

func checkXids(f Facts) (findings []Finding) {
	if !f.accelerated() {
		return nil
	}
	told := map[Xid]bool{}
	for _, x := range f.Xids {
		if told[x] || !slices.Contains(fatal, x.Number) {
			continue
		}
		told[x] = true
		findings = append(findings, gpuXid.find("Xid %d of the GPU at %s since boot", x.Number, x.PCI))
	}
	return findings
}

// checkVisible follows the rules of [gpu.Restrict]. A negative number, an empty value and a word
// that is no device name are ways to choose no GPU on purpose.
func checkVisible(f Facts) []Finding {
	if !f.Restricted || len(f.GPUs) == 0 {
		return nil
	}
	entries := strings.Split(f.Visible, ",")
	for i, entry := range entries {
		entry = strings.TrimSpace(entry)
		switch before := strings.Join(entries[:i], ","); {
		case purposeful(entry):
			return nil
		case len(gpu.Restrict(f.GPUs, entry)) == 0:
			return []Finding{cudaVisibleDevices.find("CUDA_VISIBLE_DEVICES=%q names %s, which is not one GPU of this machine: %d of %d are left",
				f.Visible, entry, len(f.devices()), len(f.GPUs))}
		case i > 0 && len(gpu.Restrict(f.GPUs, before+","+entry)) == 0:
			return []Finding{cudaVisibleDevices.find("CUDA_VISIBLE_DEVICES=%q names %s twice: no GPU is left", f.Visible, entry)}
		}
	}
	return nil
}

func purposeful(entry string) bool {
	if n, err := strconv.Atoi(entry); err == nil {
		return n < 0
	}
	return !strings.HasPrefix(entry, "GPU-") && !strings.HasPrefix(entry, "MIG-")
}

func linked(d gpu.Device) bool { return d.Health.Links > 0 }
