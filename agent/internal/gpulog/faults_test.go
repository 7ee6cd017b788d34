package gpulog

import (
	"strings"
	"testing"
	"time"
)

func TestFaultsSince(t *testing.T) {
	log := `<6>[   10.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module
<3>[  100.500000] NVRM: Xid (PCI:0000:0f:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked
<4>[  199.000000] eth0: link down
garbage NVRM: Xid (
<3>[  200.250000] NVRM: Xid (PCI:0000:0f:00): 79, pid=4711, name=python, GPU has fallen off the bus.
`
	if got := faultsSince(log, 150*time.Second); strings.Count(got, "\n") != 1 || !strings.Contains(got, ": 79, pid=4711") {
		t.Errorf("%q", got)
	}
	if got := faultsSince(log, 0); strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	if got := faultsSince(strings.Repeat(log, 1000), 0); len(got) != maxFaults {
		t.Errorf("%d bytes", len(got))
	}
}
