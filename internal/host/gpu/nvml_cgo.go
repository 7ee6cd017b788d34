//go:build cgo

package gpu

import "github.com/NVIDIA/go-nvml/pkg/nvml"

type nvmlLibrary struct{ nvml.Interface }

func newLibrary() library { return nvmlLibrary{nvml.New()} }

func (l nvmlLibrary) open() error { return check(l.Init()) }

func (l nvmlLibrary) count() (int, error) {
	n, ret := l.DeviceGetCount()
	return n, check(ret)
}

func (l nvmlLibrary) card(i int) (card, error) {
	d, ret := l.DeviceGetHandleByIndex(i)
	return nvmlCard{d, l.Extensions()}, check(ret)
}

type nvmlCard struct {
	nvml.Device
	symbols nvml.ExtendedInterface
}

func (c nvmlCard) uuid() (string, error) {
	s, ret := c.GetUUID()
	return s, check(ret)
}

func (c nvmlCard) name() (string, error) {
	s, ret := c.GetName()
	return s, check(ret)
}

func (c nvmlCard) pci() (address, error) {
	p, ret := c.GetPciInfo()
	return address{p.Domain, p.Bus, p.Device}, check(ret)
}

func (c nvmlCard) memory() (used, total int64, err error) {
	m, ret := c.GetMemoryInfo()
	return int64(m.Used), int64(m.Total), check(ret)
}

func (c nvmlCard) holders() ([]Holder, error) {
	infos, ret := c.GetComputeRunningProcesses()
	var all []Holder
	for _, info := range infos {
		all = append(all, Holder{int(info.Pid), held(info.UsedGpuMemory)})
	}
	return all, check(ret)
}

// has must precede calls of functions that an old driver may lack: go-nvml binds symbols at the
// first call, and a missing symbol ends the process.
func (c nvmlCard) has(symbol string) error {
	if err := c.symbols.LookupSymbol(symbol); err != nil {
		return failure{functionNotFound, err.Error()}
	}
	return nil
}

func (c nvmlCard) split() (bool, error) {
	if err := c.has("nvmlDeviceGetMigMode"); err != nil {
		return false, err
	}
	mode, _, ret := c.GetMigMode()
	return mode == nvml.DEVICE_MIG_ENABLE, check(ret)
}

func (c nvmlCard) slots() (int, error) {
	n, ret := c.GetMaxMigDeviceCount()
	return n, check(ret)
}

func (c nvmlCard) instance(slot int) (card, error) {
	d, ret := c.GetMigDeviceHandleByIndex(slot)
	return nvmlCard{d, c.symbols}, check(ret)
}

func (c nvmlCard) fields(fields []fieldValue) error {
	if err := c.has("nvmlDeviceGetFieldValues"); err != nil {
		return err
	}
	values := make([]nvml.FieldValue, len(fields))
	for i, f := range fields {
		values[i].FieldId, values[i].ScopeId = f.id, f.scope
	}
	ret := c.GetFieldValues(values)
	for i, v := range values {
		fields[i].valueType, fields[i].error, fields[i].value = v.ValueType, v.NvmlReturn, v.Value
	}
	return check(ret)
}

func (c nvmlCard) throttle() (uint64, error) {
	if err := c.has("nvmlDeviceGetCurrentClocksThrottleReasons"); err != nil {
		return 0, err
	}
	reasons, ret := c.GetCurrentClocksThrottleReasons()
	return reasons, check(ret)
}

func (c nvmlCard) lanes() (now, most int, err error) {
	most, ret := c.GetMaxPcieLinkWidth()
	if err := check(ret); err != nil {
		return 0, 0, err
	}
	now, ret = c.GetCurrPcieLinkWidth()
	return now, most, check(ret)
}

func (c nvmlCard) fabric() (state uint8, status code, err error) {
	if err := c.has("nvmlDeviceGetGpuFabricInfo"); err != nil {
		return 0, 0, err
	}
	info, ret := c.GetGpuFabricInfo()
	return info.State, code(info.Status), check(ret)
}

func (c nvmlCard) busy() (uint32, error) {
	if err := c.has("nvmlDeviceGetUtilizationRates"); err != nil {
		return 0, err
	}
	u, ret := c.GetUtilizationRates()
	return u.Gpu, check(ret)
}

func (c nvmlCard) draw() (uint32, error) {
	if err := c.has("nvmlDeviceGetPowerUsage"); err != nil {
		return 0, err
	}
	milliwatts, ret := c.GetPowerUsage()
	return milliwatts, check(ret)
}

func (c nvmlCard) limit() (uint32, error) {
	if err := c.has("nvmlDeviceGetEnforcedPowerLimit"); err != nil {
		return 0, err
	}
	milliwatts, ret := c.GetEnforcedPowerLimit()
	return milliwatts, check(ret)
}

func (c nvmlCard) heat() (uint32, error) {
	if err := c.has("nvmlDeviceGetTemperature"); err != nil {
		return 0, err
	}
	degrees, ret := c.GetTemperature(nvml.TEMPERATURE_GPU)
	return degrees, check(ret)
}

func check(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return failure{code(ret), ret.Error()}
}
