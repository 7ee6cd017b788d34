package health

import (
	"os"
	"testing"
	"time"
)

// This machine has a kernel, limits, and a directory for temporary files.
func TestHere(t *testing.T) {
	s := Here(t.TempDir())
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

// A launch without GPUs may take 20 ms more for all of this, and takes far less.
func TestCollectIsCheap(t *testing.T) {
	s := Here()
	s.GPUs = nil
	least := time.Hour
	for range 5 {
		begin := time.Now()
		Check(Collect(t.Context(), s))
		least = min(least, time.Since(begin))
	}
	if least > 20*time.Millisecond {
		t.Errorf("it takes %v", least)
	}
}

func BenchmarkCollect(b *testing.B) {
	s := Here()
	s.GPUs = nil
	for b.Loop() {
		Check(Collect(b.Context(), s))
	}
}
