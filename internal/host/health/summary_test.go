package health

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestSummarize(t *testing.T) {
	for _, test := range []struct {
		machine       func() (System, fstest.MapFS)
		fine, skipped string
	}{
		{p5, "GPUs (8 NVIDIA H100), NVLinks, Xids, RDMA (2 devices), GPU memory for RDMA, locked memory, open files, processes, " +
			"/dev/shm, disk space (/tmp, /logs), clock", ""},
		{dgx, "GPUs (8 NVIDIA H100), NVLinks, Xids, GPU memory for RDMA, locked memory, open files, processes, " +
			"/dev/shm, disk space (/tmp, /logs), clock", ""},
		{laptop, "open files, processes, disk space (/tmp, /logs)", "GPUs (no NVIDIA driver), RDMA (no device), /dev/shm (for GPUs)"},
		{
			hidden, "GPUs (8 NVIDIA H100), NVLinks, RDMA (2 devices), GPU memory for RDMA, open files, processes, disk space (/tmp, /logs), clock",
			"Xids (the kernel log is for root)",
		},
	} {
		s, _ := test.machine()
		f := Collect(t.Context(), s)
		got := Summarize(f, Check(f))
		if strings.Join(got.Fine, ", ") != test.fine || strings.Join(got.Skipped, ", ") != test.skipped {
			t.Errorf("got %+v, want fine %s, skipped %s", got, test.fine, test.skipped)
		}
	}
}

// hidden is the container's machine, where the kernel log may not be read.
func hidden() (System, fstest.MapFS) {
	s, root := container()
	s.KernelLog = func() (string, error) { return "", errors.New("operation not permitted") }
	return s, root
}
