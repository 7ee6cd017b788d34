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

// machine completes one of go-nvml's machines, which have neither processes nor PCI addresses: GPU i is on bus 0xf0-i.
func machine(s *server.Server) []*server.Device {
	var devices []*server.Device
	for i, d := range s.Devices {
		device := d.(*server.Device)
		device.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		device.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: uint32(0xf0 - i)}, nvml.SUCCESS }
		devices = append(devices, device)
	}
	return devices
}

func TestSurveyOfMachines(t *testing.T) {
	for name, s := range map[string]*server.Server{
		"A100": dgxa100.New(), "H100": dgxh100.New(), "H200": dgxh200.New(), "B200": dgxb200.New(),
	} {
		var want []Device
		for i, d := range machine(s) {
			want = append([]Device{{
				UUID: d.UUID, Name: d.Config.Name, PCI: fmt.Sprintf("0000:%02x:00.0", 0xf0-i),
				Memory: int64(d.Config.MemoryMB) << 20,
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
			Holders: []int{7, 9},
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

func TestSurveyLeavesUnknownWhatTheDriverDoesNotTell(t *testing.T) {
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
		d.GetMigModeFunc = nil
	}
	s.LookupSymbolFunc = func(string) error { return errors.New("undefined symbol") }
	if got, why, err := survey(nvmlLibrary{s}); err != nil || why != "" || len(got) != 8 {
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
