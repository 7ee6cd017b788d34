package gpu

import (
	"encoding/binary"
	"fmt"
)

// Health is what is wrong with a GPU as far as its driver tells: what that does not tell is as on a healthy one, so that the zero
// Health is a GPU of which nothing bad is known. A MIG instance has that of its GPU.
type Health struct {
	// Uncorrected counts the ECC errors that were not corrected since the driver was loaded.
	Uncorrected uint64
	// RemapPending says that a row of memory is remapped at the next reset, RemapFailed that there was no row left for it.
	RemapPending, RemapFailed bool
	// Recovery is what the driver wants done before the GPU is used again, "GPU reset"; empty for nothing. Drivers before R570 do not tell.
	Recovery string
	// Throttled are the reasons that hold its clocks down against its will: heat and power supply.
	Throttled []string
	// Lanes and MaxLanes are of its PCIe link as it runs, and as GPU and slot could; 0 where it has none.
	Lanes, MaxLanes int
	// Links is the number of its NVLinks, DownLinks those that are not active.
	Links     int
	DownLinks []int
	// Fabric says why the GPU is not yet part of its NVSwitch fabric; empty when it is, or has none.
	Fabric string
}

// fieldValue is laid out as nvmlFieldValue_t in nvml.h.
type fieldValue struct {
	id, scope        uint32
	_, _             int64 // when, and for how long, the driver looked
	valueType, error uint32
	value            [8]byte
}

// Fields of a GPU (NVML_FI_DEV_... in nvml.h); the scope of nvLinkState is the link.
const (
	eccUncorrected = 4
	nvLinkCount    = 91
	remapPending   = 144
	remapFailure   = 145
	nvLinkState    = 165
	energy         = 83
	powerNow       = 186
	powerLimit     = 190
	recoveryAction = 230
)

// maxLinks is NVML_NVLINK_MAX_LINKS.
const maxLinks = 36

// number is the value of a field, if it has one: of type unsigned int, unsigned long (long), or (long long) int.
func (f fieldValue) number() (n uint64, known bool) {
	switch {
	case code(f.error) != success:
		return 0, false
	case f.valueType == 1 || f.valueType == 5:
		return uint64(binary.NativeEndian.Uint32(f.value[:])), true
	case f.valueType >= 2 && f.valueType <= 4:
		return binary.NativeEndian.Uint64(f.value[:]), true
	}
	return 0, false
}

// examine asks a GPU how it is. Each question may stay without an answer: by an old driver, a small GPU, in a virtual machine.
func examine(c card) (h Health) {
	f := []fieldValue{{id: eccUncorrected}, {id: remapPending}, {id: remapFailure}, {id: recoveryAction}, {id: nvLinkCount}}
	if c.fields(f) == nil {
		h.Uncorrected, _ = f[0].number()
		pending, _ := f[1].number()
		failed, _ := f[2].number()
		h.RemapPending, h.RemapFailed = pending == 1, failed == 1
		action, _ := f[3].number()
		h.Recovery = recovery(action)
		links, _ := f[4].number()
		h.Links = int(min(links, maxLinks))
	}
	h.DownLinks = downLinks(c, h.Links)
	if reasons, err := c.throttle(); err == nil {
		h.Throttled = throttled(reasons)
	}
	if lanes, most, err := c.lanes(); err == nil {
		h.Lanes, h.MaxLanes = lanes, most
	}
	if state, status, err := c.fabric(); err == nil {
		h.Fabric = unready(state, status)
	}
	return h
}

// recovery names an nvmlDeviceGpuRecoveryAction_t.
func recovery(action uint64) string {
	names := []string{"", "GPU reset", "node reboot", "drain P2P", "drain and GPU reset", "recovery of the IMEX domain"}
	if action < uint64(len(names)) {
		return names[action]
	}
	return fmt.Sprintf("action %d", action)
}

func downLinks(c card, links int) (down []int) {
	if links == 0 {
		return nil
	}
	states := make([]fieldValue, links)
	for i := range states {
		states[i] = fieldValue{id: nvLinkState, scope: uint32(i)}
	}
	if c.fields(states) != nil {
		return nil
	}
	for i, s := range states {
		if active, known := s.number(); known && active == 0 {
			down = append(down, i)
		}
	}
	return down
}

// throttled names the bits of nvmlClocksEventReasons that tell of trouble. Idleness, a power cap and clocks that were set are
// none (DCGM's health checks have the same four).
func throttled(reasons uint64) (names []string) {
	for _, r := range []struct {
		bit  uint64
		name string
	}{
		{0x08, "hardware slowdown"},
		{0x20, "software thermal slowdown"},
		{0x40, "hardware thermal slowdown"},
		{0x80, "power brake"},
	} {
		if reasons&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}

// unready puts an nvmlGpuFabricState_t into words; the status counts once the GPU is registered.
func unready(state uint8, status code) string {
	switch {
	case state == 1:
		return "not started"
	case state == 2:
		return "in progress"
	case state == 3 && status != success:
		return fmt.Sprintf("failed with NVML error %d", status)
	}
	return ""
}
