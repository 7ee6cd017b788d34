package health

import (
	"os"
	"testing"
)

// This machine has a kernel, limits, and a directory for temporary files.
func TestHere(t *testing.T) {
	s := ThisMachine(t.TempDir())
	s.GPUs = nil
	f := Collect(t.Context(), s)
	if f.Versions[Kernel] == "" || f.Limits.NoFile == 0 || f.Limits.Memlock == 0 {
		t.Errorf("got %+v", f)
	}
	if len(f.Disks) != 2 || f.Disks[0].Path != os.TempDir() || f.Disks[0].Size == 0 || f.Disks[1].Size == 0 {
		t.Errorf("got disks %+v", f.Disks)
	}
	if f.GPUErr != nil || f.GPUs != nil || f.Restricted {
		t.Errorf("GPUs were looked at: %+v", f)
	}
}

// BenchmarkCollect measures the cost for a launch without GPUs.
func BenchmarkCollect(b *testing.B) {
	s := ThisMachine()
	s.GPUs = nil
	for b.Loop() {
		Check(Collect(b.Context(), s))
	}
}
