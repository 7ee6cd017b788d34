//go:build !cgo

package gpu

import (
	"bytes"
	"errors"

	"github.com/golaunch/golaunch/internal/host/dylib"
)

// dlopened is NVML's C functions, called without cgo. It needs a driver of R510 or later.
type dlopened struct {
	initialize  func() code
	errorString func(code) string
	deviceCount func(*uint32) code
	byIndex     func(uint32, *handle) code
	getUUID     func(handle, *byte, uint32) code
	getName     func(handle, *byte, uint32) code
	getPCI      func(handle, *pciInfo) code
	getMemory   func(handle, *memoryInfo) code
	processes   func(handle, *uint32, *processInfo) code
	migMode     func(device handle, current, pending *uint32) code
	migSlots    func(handle, *uint32) code
	migByIndex  func(handle, uint32, *handle) code

	// Old drivers may lack these functions, which are then nil.
	getFields   func(handle, int32, *fieldValue) code
	getThrottle func(handle, *uint64) code
	getLanes    func(handle, *uint32) code
	getMaxLanes func(handle, *uint32) code
	getFabric   func(handle, *fabricInfo) code
	getUse      func(handle, *utilization) code
	getPower    func(handle, *uint32) code
	getLimit    func(handle, *uint32) code
	getHeat     func(device handle, sensor int32, degrees *uint32) code
}

type handle uintptr

// These have the layouts of nvmlPciInfo_t, nvmlMemory_t, nvmlUtilization_t, nvmlGpuFabricInfo_t and
// nvmlProcessInfo_t in nvml.h.
type (
	pciInfo struct {
		legacy                             [16]byte
		domain, bus, device, id, subsystem uint32
		busID                              [32]byte
	}
	memoryInfo  struct{ total, free, used uint64 }
	utilization struct{ gpu, memory uint32 }
	fabricInfo  struct {
		cluster        [16]byte
		status, clique uint32
		state          uint8
	}
	processInfo struct {
		pid                          uint32
		used                         uint64
		gpuInstance, computeInstance uint32
	}
)

func newLibrary() library { return &dlopened{} }

func (l *dlopened) open() error {
	lib, err := dylib.Open("libnvidia-ml.so.1", dylib.Lazy|dylib.Global)
	if errors.Is(err, dylib.ErrStatic) {
		return err
	}
	if err != nil {
		return failure{libraryNotFound, err.Error()}
	}
	for name, fn := range map[string]any{
		"nvmlInit_v2":                             &l.initialize,
		"nvmlErrorString":                         &l.errorString,
		"nvmlDeviceGetCount_v2":                   &l.deviceCount,
		"nvmlDeviceGetHandleByIndex_v2":           &l.byIndex,
		"nvmlDeviceGetUUID":                       &l.getUUID,
		"nvmlDeviceGetName":                       &l.getName,
		"nvmlDeviceGetPciInfo_v3":                 &l.getPCI,
		"nvmlDeviceGetMemoryInfo":                 &l.getMemory,
		"nvmlDeviceGetComputeRunningProcesses_v3": &l.processes,
		"nvmlDeviceGetMigMode":                    &l.migMode,
		"nvmlDeviceGetMaxMigDeviceCount":          &l.migSlots,
		"nvmlDeviceGetMigDeviceHandleByIndex":     &l.migByIndex,
	} {
		symbol, err := dylib.Symbol(lib, name)
		if err != nil {
			return failure{functionNotFound, err.Error()}
		}
		dylib.Bind(fn, symbol)
	}
	for name, fn := range map[string]any{
		"nvmlDeviceGetFieldValues":                  &l.getFields,
		"nvmlDeviceGetCurrentClocksThrottleReasons": &l.getThrottle,
		"nvmlDeviceGetCurrPcieLinkWidth":            &l.getLanes,
		"nvmlDeviceGetMaxPcieLinkWidth":             &l.getMaxLanes,
		"nvmlDeviceGetGpuFabricInfo":                &l.getFabric,
		"nvmlDeviceGetUtilizationRates":             &l.getUse,
		"nvmlDeviceGetPowerUsage":                   &l.getPower,
		"nvmlDeviceGetEnforcedPowerLimit":           &l.getLimit,
		"nvmlDeviceGetTemperature":                  &l.getHeat,
	} {
		if symbol, err := dylib.Symbol(lib, name); err == nil {
			dylib.Bind(fn, symbol)
		}
	}
	return l.check(l.initialize())
}

func (l *dlopened) count() (int, error) {
	var n uint32
	ret := l.deviceCount(&n)
	return int(n), l.check(ret)
}

func (l *dlopened) card(i int) (card, error) {
	c := dlopenedCard{lib: l}
	ret := l.byIndex(uint32(i), &c.handle)
	return c, l.check(ret)
}

func (l *dlopened) check(ret code) error {
	if ret == success {
		return nil
	}
	return failure{ret, l.errorString(ret)}
}

type dlopenedCard struct {
	lib    *dlopened
	handle handle
}

func (c dlopenedCard) uuid() (string, error) { return c.text(c.lib.getUUID) }
func (c dlopenedCard) name() (string, error) { return c.text(c.lib.getName) }

func (c dlopenedCard) text(get func(handle, *byte, uint32) code) (string, error) {
	var buf [96]byte // NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE
	ret := get(c.handle, &buf[0], uint32(len(buf)))
	text, _, _ := bytes.Cut(buf[:], []byte{0})
	return string(text), c.lib.check(ret)
}

func (c dlopenedCard) pci() (address, error) {
	var p pciInfo
	ret := c.lib.getPCI(c.handle, &p)
	return address{p.domain, p.bus, p.device}, c.lib.check(ret)
}

func (c dlopenedCard) memory() (used, total int64, err error) {
	var m memoryInfo
	ret := c.lib.getMemory(c.handle, &m)
	return int64(m.used), int64(m.total), c.lib.check(ret)
}

// holders grows its buffer while the driver asks for more: processes may start between two calls.
func (c dlopenedCard) holders() ([]Holder, error) {
	for size := 64; ; size *= 2 {
		infos, n := make([]processInfo, size), uint32(size)
		ret := c.lib.processes(c.handle, &n, &infos[0])
		if ret == insufficientSize {
			continue
		}
		if err := c.lib.check(ret); err != nil {
			return nil, err
		}
		var all []Holder
		for _, info := range infos[:n] {
			all = append(all, Holder{int(info.pid), held(info.used)})
		}
		return all, nil
	}
}

func (c dlopenedCard) split() (bool, error) {
	var current, pending uint32
	ret := c.lib.migMode(c.handle, &current, &pending)
	return current == 1, c.lib.check(ret)
}

func (c dlopenedCard) slots() (int, error) {
	var n uint32
	ret := c.lib.migSlots(c.handle, &n)
	return int(n), c.lib.check(ret)
}

func (c dlopenedCard) instance(slot int) (card, error) {
	d := dlopenedCard{lib: c.lib}
	ret := c.lib.migByIndex(c.handle, uint32(slot), &d.handle)
	return d, c.lib.check(ret)
}

// errLacks means that the driver is too old for a question.
var errLacks = failure{functionNotFound, "no such function"}

func (c dlopenedCard) fields(fields []fieldValue) error {
	if c.lib.getFields == nil {
		return errLacks
	}
	return c.lib.check(c.lib.getFields(c.handle, int32(len(fields)), &fields[0]))
}

func (c dlopenedCard) throttle() (reasons uint64, err error) {
	if c.lib.getThrottle == nil {
		return 0, errLacks
	}
	ret := c.lib.getThrottle(c.handle, &reasons)
	return reasons, c.lib.check(ret)
}

func (c dlopenedCard) lanes() (now, most int, err error) {
	if c.lib.getLanes == nil || c.lib.getMaxLanes == nil {
		return 0, 0, errLacks
	}
	var current, maximum uint32
	if err := c.lib.check(c.lib.getMaxLanes(c.handle, &maximum)); err != nil {
		return 0, 0, err
	}
	ret := c.lib.getLanes(c.handle, &current)
	return int(current), int(maximum), c.lib.check(ret)
}

func (c dlopenedCard) fabric() (state uint8, status code, err error) {
	if c.lib.getFabric == nil {
		return 0, 0, errLacks
	}
	var info fabricInfo
	ret := c.lib.getFabric(c.handle, &info)
	return info.state, code(info.status), c.lib.check(ret)
}

func (c dlopenedCard) busy() (uint32, error) {
	if c.lib.getUse == nil {
		return 0, errLacks
	}
	var u utilization
	ret := c.lib.getUse(c.handle, &u)
	return u.gpu, c.lib.check(ret)
}

func (c dlopenedCard) draw() (uint32, error)  { return c.number(c.lib.getPower) }
func (c dlopenedCard) limit() (uint32, error) { return c.number(c.lib.getLimit) }

func (c dlopenedCard) number(get func(handle, *uint32) code) (n uint32, err error) {
	if get == nil {
		return 0, errLacks
	}
	ret := get(c.handle, &n)
	return n, c.lib.check(ret)
}

func (c dlopenedCard) heat() (degrees uint32, err error) {
	if c.lib.getHeat == nil {
		return 0, errLacks
	}
	const gpuSensor = 0 // NVML_TEMPERATURE_GPU
	ret := c.lib.getHeat(c.handle, gpuSensor, &degrees)
	return degrees, c.lib.check(ret)
}
