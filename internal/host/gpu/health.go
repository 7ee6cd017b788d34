package gpu

import (
	"encoding/binary"
	"fmt"
)

// Health has the problems of a GPU that its driver reports. An unknown fact has the value of a
// healthy GPU, so the zero Health is healthy. A MIG instance has the health of its GPU.
type Health struct {
	// Uncorrected counts uncorrected ECC errors since the driver was loaded.
	Uncorrected uint64
	// RemapPending says that the next reset remaps a row of memory. RemapFailed says that no spare
	// row was left.
	RemapPending, RemapFailed bool
	// Recovery is what the driver demands before the GPU is used again, such as "GPU reset"; empty
	// if it demands nothing. Drivers before R570 do not tell.
	Recovery string
	// Throttled are the reasons for reduced clocks that are faults: heat and power supply.
	Throttled []string
	// Lanes is the number of PCIe lanes in use, and MaxLanes the number that GPU and slot support;
	// 0 without PCIe.
	Lanes, MaxLanes int
	// Links is the number of the GPU's NVLinks, and DownLinks the number of inactive ones.
	Links     int
	DownLinks []int
	// Fabric says why the GPU has not joined its NVSwitch fabric; empty if the GPU has joined, or
	// if there is no fabric.
	Fabric string
}

type fieldValue struct {
	id, scope        uint32
	_, _             int64 // timestamp and latency
	valueType, error uint32
	value            [8]byte
}

// Fields of a GPU (NVML_FI_DEV_... in nvml.h). The scope of nvLinkState is the link.
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

const maxLinks = 36

// number is the value of an integer field, if it has one.
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

// examine reads the condition of a GPU. Old drivers, small GPUs and virtual machines do not answer
// some questions.
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

// throttled names the bits of nvmlClocksEventReasons that are faults, as DCGM's health checks do.
// Idleness, a power cap and fixed clocks are not.
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

// unready describes an nvmlGpuFabricState_t. status counts once the GPU is registered.
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
