package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Restrict keeps the devices that a value of CUDA_VISIBLE_DEVICES names, in its order. An entry is
// an Index, a UUID or the unambiguous beginning of a UUID ("GPU-8f", "MIG-1c"). The first entry
// that names no device ends the list, so "" and "-1" leave none (CUDA C++ Programming Guide, CUDA
// Environment Variables). If an entry names a device again, no device is left; CUDA does the same,
// without documenting it (torch/cuda/__init__.py, _parse_visible_devices).
func Restrict(devices []Device, value string) []Device {
	var kept []Device
	for entry := range strings.SplitSeq(value, ",") {
		i := find(devices, strings.TrimSpace(entry))
		if i < 0 {
			break
		}
		if slices.ContainsFunc(kept, func(d Device) bool { return d.Index == devices[i].Index }) {
			return nil
		}
		kept = append(kept, devices[i])
	}
	return kept
}

// Choose is Restrict for a person's choice: an entry that names no device, or names one again, is
// an error.
func Choose(devices []Device, list string) ([]Device, error) {
	var chosen []Device
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		i := find(devices, entry)
		switch {
		case i < 0:
			return nil, fmt.Errorf("GPU %q is none of the %d here: give indexes or UUIDs as nvidia-smi -L lists them", entry, len(devices))
		case slices.ContainsFunc(chosen, func(d Device) bool { return d.Index == devices[i].Index }):
			return nil, fmt.Errorf("GPU %q is chosen twice", entry)
		}
		chosen = append(chosen, devices[i])
	}
	return chosen, nil
}

// find returns the place of the device that entry names, or -1.
func find(devices []Device, entry string) int {
	if index, err := strconv.Atoi(entry); err == nil {
		return slices.IndexFunc(devices, func(d Device) bool { return d.Index == index })
	}
	if !strings.HasPrefix(entry, "GPU-") && !strings.HasPrefix(entry, "MIG-") {
		return -1
	}
	found := -1
	for i, d := range devices {
		switch {
		case d.UUID == entry:
			return i
		case strings.HasPrefix(d.UUID, entry) && found >= 0:
			return -1
		case strings.HasPrefix(d.UUID, entry):
			found = i
		}
	}
	return found
}
