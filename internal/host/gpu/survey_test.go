//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// machine completes one of go-nvml's machines, which have neither processes nor PCI addresses: GPU
// i is on bus 0xf0-i.
func machine(s *server.Server) []*server.Device {
	var devices []*server.Device
	for i, d := range s.Devices {
		device := d.(*server.Device)
		device.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		device.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: uint32(0xf0 - i)}, nvml.SUCCESS }
		heal(device)
		devices = append(devices, device)
	}
	return devices
}

// heal gives one of go-nvml's devices the answers of a healthy GPU with 18 NVLinks, as a driver of
// R570 does.
func heal(d *server.Device) {
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		for i := range values {
			values[i].ValueType, values[i].Value = 1, [8]byte{answers[values[i].FieldId]}
		}
		return nvml.SUCCESS
	}
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return nvml.ClocksEventReasonGpuIdle, nvml.SUCCESS }
	d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.SUCCESS }
	d.GetCurrPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.SUCCESS }
	d.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
		return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED}, nvml.SUCCESS
	}
}

var answers = map[uint32]byte{nvml.FI_DEV_NVLINK_LINK_COUNT: 18, nvml.FI_DEV_NVLINK_GET_STATE: 1}

func TestSurveyReportsFaults(t *testing.T) {
	for _, test := range []struct {
		spoil func(*server.Device)
		want  Health
	}{
		{func(*server.Device) {}, well},
		{field(nvml.FI_DEV_ECC_DBE_VOL_TOTAL, 3), Health{Uncorrected: 3}},
		{field(nvml.FI_DEV_REMAPPED_PENDING, 1), Health{RemapPending: true}},
		{field(nvml.FI_DEV_REMAPPED_FAILURE, 1), Health{RemapFailed: true}},
		{field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 1), Health{Recovery: "GPU reset"}},
		{field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 9), Health{Recovery: "action 9"}},
		{field(nvml.FI_DEV_NVLINK_LINK_COUNT, 2), Health{Links: 2, DownLinks: []int{0, 1}}},
		{field(nvml.FI_DEV_NVLINK_LINK_COUNT, 200), Health{Links: maxLinks, DownLinks: upTo(maxLinks)}},
		{func(d *server.Device) {
			d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x1ff, nvml.SUCCESS }
		}, Health{Throttled: []string{
			"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake",
		}, Links: 18}},
		{func(d *server.Device) {
			d.GetCurrPcieLinkWidthFunc = func() (int, nvml.Return) { return 4, nvml.SUCCESS }
		}, Health{Lanes: 4, Links: 18}},
		{fabric(nvml.GPU_FABRIC_STATE_NOT_STARTED, 0), Health{Fabric: "not started", Links: 18}},
		{fabric(nvml.GPU_FABRIC_STATE_IN_PROGRESS, 0), Health{Fabric: "in progress", Links: 18}},
		{fabric(nvml.GPU_FABRIC_STATE_COMPLETED, 999), Health{Fabric: "failed with NVML error 999", Links: 18}},
		{fabric(nvml.GPU_FABRIC_STATE_NOT_SUPPORTED, 999), well},
	} {
		s := dgxh200.New()
		device := machine(s)[7]
		test.spoil(device)
		got, _, err := survey(nvmlLibrary{s})
		want := test.want
		if want.MaxLanes = 16; want.Lanes == 0 {
			want.Lanes = 16
		}
		if err != nil || !reflect.DeepEqual(got[0].Health, want) || !reflect.DeepEqual(got[1].Health, well) {
			t.Errorf("got %+v (%v), want %+v and a healthy neighbour", got[0].Health, err, want)
		}
	}
}

func TestSurveyReportsPower(t *testing.T) {
	s := dgxh200.New()
	machine(s)[7].GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		for i := range values {
			values[i].ValueType = 3
			values[i].Value[0] = map[uint32]byte{nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION: 9, nvml.FI_DEV_POWER_CURRENT_LIMIT: 7}[values[i].FieldId]
		}
		return nvml.SUCCESS
	}
	got, _, err := survey(nvmlLibrary{s})
	if err != nil || got[0].Power != (Power{Energy: 9, Limit: 7}) || got[1].Power != (Power{}) {
		t.Errorf("got %+v and %+v (%v)", got[0].Power, got[1].Power, err)
	}
}

// field makes a device answer 0 to all questions for fields, except to one.
func field(id uint32, value byte) func(*server.Device) {
	return func(d *server.Device) {
		d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
			for i := range values {
				values[i].ValueType = 3
				if values[i].FieldId == id {
					values[i].Value[0] = value
				}
			}
			return nvml.SUCCESS
		}
	}
}

func fabric(state uint8, status uint32) func(*server.Device) {
	return func(d *server.Device) {
		d.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{State: state, Status: status}, nvml.SUCCESS
		}
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// If a driver answers no question about health, the GPU counts as healthy.
func TestSurveyLeavesHealthUnknown(t *testing.T) {
	s := dgxh100.New()
	for _, d := range machine(s) {
		d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
			for i := range values {
				values[i] = nvml.FieldValue{NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED), ValueType: 1, Value: [8]byte{1}}
			}
			return nvml.SUCCESS
		}
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0xff, nvml.ERROR_NOT_SUPPORTED }
		d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.ERROR_NOT_SUPPORTED }
		d.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_NOT_STARTED}, nvml.ERROR_UNKNOWN
		}
	}
	got, why, err := survey(nvmlLibrary{s})
	if err != nil || why != "" || len(got) != 8 || !reflect.DeepEqual(got[0].Health, Health{}) {
		t.Errorf("got %v %q %v, want 8 GPUs of unknown health", got, why, err)
	}
}

func TestSurveyOfMachines(t *testing.T) {
	for name, s := range map[string]*server.Server{
		"A100": dgxa100.New(), "H100": dgxh100.New(), "H200": dgxh200.New(), "B200": dgxb200.New(),
	} {
		var want []Device
		for i, d := range machine(s) {
			want = append([]Device{{
				UUID: d.UUID, Name: d.Config.Name, PCI: fmt.Sprintf("0000:%02x:00.0", 0xf0-i),
				Memory: int64(d.Config.MemoryMB) << 20, Health: well,
			}}, want...)
		}
		for i := range want {
			want[i].Index = i
		}
		got, why, err := survey(nvmlLibrary{s})
		if err != nil || why != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v %q %v, want %v", name, got, why, err, want)
		}
		if len(got) != 8 || !strings.Contains(got[0].Name, name) {
			t.Errorf("got %d GPUs, %v, want 8 of %s", len(got), got, name)
		}
	}
}

func TestSurveyCountsInstancesOfSplitGPUs(t *testing.T) {
	s := dgxh100.New()
	split := machine(s)[0]
	split.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	split.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	split.GetMigDeviceHandleByIndexFunc = func(slot int) (nvml.Device, nvml.Return) {
		if slot%3 != 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc:       func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", slot), nvml.SUCCESS },
			GetNameFunc:       func() (string, nvml.Return) { return "MIG 1g.10gb", nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED },
			GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
				return []nvml.ProcessInfo{{Pid: 9}, {Pid: 7}, {Pid: 9}}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	got, why, err := survey(nvmlLibrary{s})
	if err != nil || why != "" || len(got) != 10 {
		t.Fatalf("got %v %q %v, want 7 GPUs and 3 instances", got, why, err)
	}
	for i, slot := range []int{0, 3, 6} {
		want := Device{
			Index: 7 + i, UUID: fmt.Sprintf("MIG-%d", slot), Name: "MIG 1g.10gb", PCI: "0000:f0:00.0", MIG: true,
			Holders: []int{7, 9}, Health: well,
		}
		if !reflect.DeepEqual(got[7+i], want) {
			t.Errorf("got %v, want %v", got[7+i], want)
		}
	}
}

func TestSurveyLeavesOutGPUsOfOthers(t *testing.T) {
	s := dgxh100.New()
	devices := machine(s)
	allowed := 4
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= allowed {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return devices[i], nvml.SUCCESS
	}
	got, why, err := survey(nvmlLibrary{s})
	if err != nil || why != "" || len(got) != 4 || got[0].UUID != devices[3].UUID || got[0].Index != 0 {
		t.Errorf("got %v %q %v, want GPUs 3 to 0", got, why, err)
	}
	allowed = 0
	got, why, err = survey(nvmlLibrary{s})
	if err != nil || why != "no permission for any of the 8 GPUs" || len(got) != 0 {
		t.Errorf("got %v %q %v, want none", got, why, err)
	}
}

func TestSurveyOfSplitGPUsWithoutInstances(t *testing.T) {
	s := dgxh100.New()
	for _, d := range machine(s) {
		d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
		d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
		d.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
	}
	got, why, err := survey(nvmlLibrary{s})
	if err != nil || why != "all 8 GPUs are in MIG mode and have no instances" || len(got) != 0 {
		t.Errorf("got %v %q %v, want none", got, why, err)
	}
}

func TestSurveyLeavesUnknownFactsUnknown(t *testing.T) {
	s := dgxh100.New()
	devices := machine(s)
	for i, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION} {
		devices[i].GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ret }
	}
	devices[2].GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	devices[3].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
	got, why, err := survey(nvmlLibrary{s})
	if err != nil || why != "" || len(got) != 8 || got[4].Memory != 0 || got[5].Memory == 0 {
		t.Errorf("got %v %q %v, want 8 GPUs, the fifth of unknown memory", got, why, err)
	}
}

// An old driver has no MIG functions, and their call would end the process.
func TestSurveyOfOldDriver(t *testing.T) {
	s := dgxa100.New()
	for _, d := range machine(s) {
		d.GetMigModeFunc, d.GetFieldValuesFunc, d.GetCurrentClocksThrottleReasonsFunc, d.GetGpuFabricInfoFunc = nil, nil, nil, nil
	}
	s.LookupSymbolFunc = func(string) error { return errors.New("undefined symbol") }
	if got, why, err := survey(nvmlLibrary{s}); err != nil || why != "" || len(got) != 8 || got[0].Health.Links != 0 {
		t.Errorf("got %v %q %v, want 8 GPUs", got, why, err)
	}
}

func TestSurveyNamesTheFailingStep(t *testing.T) {
	for want, spoil := range map[string]func(*server.Server, *server.Device){
		"count GPUs: ": func(s *server.Server, _ *server.Device) {
			s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: UUID: ": func(_ *server.Server, d *server.Device) {
			d.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: name: ": func(_ *server.Server, d *server.Device) {
			d.GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: memory: ": func(_ *server.Server, d *server.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: PCI address: ": func(_ *server.Server, d *server.Device) {
			d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: MIG mode: ": func(_ *server.Server, d *server.Device) {
			d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_UNKNOWN }
		},
		"GPU index 3 of 8: compute processes: ": func(_ *server.Server, d *server.Device) {
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_UNKNOWN }
		},
	} {
		s := dgxb200.New()
		spoil(s, machine(s)[3])
		_, _, err := survey(nvmlLibrary{s})
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "(NVML error 999)") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
