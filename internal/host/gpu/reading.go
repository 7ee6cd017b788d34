package gpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Reading is the present use of a device. An unknown Use is NaN; other unknown values are 0. A MIG
// instance has its own memory, usually no Use, and the power and temperature of its GPU.
type Reading struct {
	// UUID is the UUID of the [Device].
	UUID string
	// Use is the part of the driver's last sample period, at most a second, in which a kernel ran,
	// from 0 to 1.
	Use float64
	// Memory is how much of MemoryTotal is in use, including the driver's own; both in bytes.
	Memory, MemoryTotal int64
	// Power and PowerLimit are in milliwatts.
	Power, PowerLimit uint64
	// Temperature is in degrees Celsius.
	Temperature int
	// Holders are the processes with a compute context on the device, at most 16, the most memory
	// first. In a container, Holders is empty or has the host's pids.
	Holders []Holder
}

// Holder is a process with a compute context on a device. Bytes is its memory there, or -1 if
// unknown.
type Holder struct {
	PID   int
	Bytes int64
}

const maxHolders = 16

// held converts the driver's value for a process. An unknown value has all bits set
// (NVML_VALUE_NOT_AVAILABLE).
func held(used uint64) int64 {
	if used > math.MaxInt64 {
		return -1
	}
	return int64(used)
}

// measure reads all devices, or says why there is none. It omits GPUs that do not answer; if none
// answers, it fails.
func measure(lib library) (readings []Reading, why string, err error) {
	n, err := lib.count()
	if err != nil {
		return nil, "", fmt.Errorf("count GPUs: %w", err)
	}
	usable, fault := 0, error(nil)
	for i := range n {
		r, err := gauge(lib, i)
		switch {
		case is(err, noPermission): // a GPU of another job
		case err != nil:
			fault = fmt.Errorf("GPU index %d of %d: %w%s", i, n, err, remedy(err))
		default:
			usable++
			readings = append(readings, r...)
		}
	}
	switch {
	case len(readings) > 0:
		return readings, "", nil
	case fault != nil:
		return nil, "", fault
	}
	return nil, none(n, usable), nil
}

// gauge reads a GPU, or its MIG instances.
func gauge(lib library, i int) (readings []Reading, err error) {
	whole, err := lib.card(i)
	if err != nil {
		return nil, err
	}
	cards, _, err := parts(whole)
	if err != nil {
		return nil, err
	}
	r := shared(whole)
	for _, c := range cards {
		if r.UUID, err = c.uuid(); err != nil {
			return nil, fmt.Errorf("UUID: %w", err)
		}
		r.Use, r.Memory, r.MemoryTotal, r.Holders = use(c), 0, 0, most(c)
		if used, total, err := c.memory(); err == nil {
			r.Memory, r.MemoryTotal = used, total
		}
		readings = append(readings, r)
	}
	return readings, nil
}

// most are the holders with the most memory.
func most(c card) []Holder {
	all, err := c.holders()
	if err != nil {
		return nil
	}
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID)) })
	return all[:min(len(all), maxHolders)]
}

// shared reads the values that the instances of a GPU have in common. Newer drivers report them
// most exactly in fields.
func shared(c card) (r Reading) {
	f := []fieldValue{{id: powerNow}, {id: powerLimit}}
	if c.fields(f) == nil {
		r.Power, _ = f[0].number()
		r.PowerLimit, _ = f[1].number()
	}
	r.Power = cmp.Or(r.Power, told(c.draw))
	r.PowerLimit = cmp.Or(r.PowerLimit, told(c.limit))
	r.Temperature = int(told(c.heat))
	return r
}

// told returns the driver's answer to a question, or 0.
func told(question func() (uint32, error)) uint64 {
	n, err := question()
	if err != nil {
		return 0
	}
	return uint64(n)
}

func use(c card) float64 {
	percent, err := c.busy()
	if err != nil {
		return math.NaN()
	}
	return min(float64(percent)/100, 1)
}
