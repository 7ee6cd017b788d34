package sampling

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/gpulog"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// TestFirstLook checks that the first look has no rates, because an adopted rank may have used much
// CPU time before.
func TestFirstLook(t *testing.T) {
	m, now := &rank{}, time.Now()
	first := m.used([]proc.Member{{CPU: 80 * time.Hour, IO: 1 << 40}}, now)
	if !math.IsNaN(first.CPUs) || !math.IsNaN(first.IO) {
		t.Errorf("%v CPUs, %v bytes a second", first.CPUs, first.IO)
	}
	if next := m.used([]proc.Member{{CPU: 80*time.Hour + time.Second, IO: 1 << 40}}, now.Add(2*time.Second)); next.CPUs != 0.5 || next.IO != 0 {
		t.Errorf("%v CPUs, %v bytes a second", next.CPUs, next.IO)
	}
}

// TestXidsOfRanks checks that each rank gets the messages about its GPU, including messages from
// just before the rank's end.
func TestXidsOfRanks(t *testing.T) {
	// A socket stands for /dev/kmsg: each write is a record.
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	log := gpulog.NewXids(ends[0])
	defer func() {
		if err := errors.Join(log.Close(), unix.Close(ends[1])); err != nil {
			t.Error(err)
		}
	}()
	gpus := []placement.GPU{{UUID: "GPU-a", PCI: "0000:0f:00.0"}, {UUID: "GPU-b", PCI: "0000:1b:00.0"}, {UUID: "GPU-c"}}
	s := &Sampler{xids: log}
	g := &gang{Gang: Gang{Job: "a"}}
	for number, gpu := range []*placement.GPU{{UUID: "GPU-b"}, {UUID: "GPU-c"}, {UUID: "GPU-elsewhere"}, nil} {
		r := &rank{pci: pciOf(gpu, gpus)}
		r.Bundle.Rank = number
		if _, err := unix.Write(ends[1], fmt.Appendf(nil, "4,%d,1000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n", number)); err != nil {
			t.Fatal(err)
		}
		s.add(g, r, report.Series{}, time.Unix(1e9, 0), report.Unmeasured())
	}
	for _, series := range s.table.read("", time.Time{}) {
		switch got := series.Last().Xids; {
		case series.Rank == 0 && got != 1, series.Rank > 0 && !math.IsNaN(got):
			t.Errorf("rank %d has %v", series.Rank, got)
		}
	}
}
