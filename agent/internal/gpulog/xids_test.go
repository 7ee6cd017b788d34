package gpulog

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelLog stands for /dev/kmsg. Each write is a record. Each read returns one record, or nothing,
// without waiting.
func kernelLog(t *testing.T) (log *XidCounter, tell func(text string)) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	log = NewXids(ends[0])
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		unix.Close(ends[1])
	})
	serial := 0
	return log, func(text string) {
		t.Helper()
		serial++
		if _, err := unix.Write(ends[1], fmt.Appendf(nil, "4,%d,%d,-;%s\n SUBSYSTEM=pci\n", serial, 1000*serial, text)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestXids(t *testing.T) {
	log, tell := kernelLog(t)
	want := func(pci string, n float64) {
		t.Helper()
		if got := log.Of(pci); got != n {
			t.Errorf("%s has had %v errors, not %v", pci, got, n)
		}
	}
	want("0000:0f:00.0", 0)
	tell("NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	tell("NVRM: GPU at PCI:0000:0f:00: GPU-4c1c0bd2-6bb1-4cbb-a2ad-4ea9b3a2d3bd")
	tell("nvme nvme0: I/O 79 QID 4 timeout")
	tell("NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 31, pid=4711, name=python, Ch 00000008")
	want("0000:0f:00.0", 1)
	want("0000:1b:00.0", 1)
	want("0000:aa:00.0", 0)
	for range 3 {
		tell("NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	}
	want("0000:0f:00.0", 4)
	if !math.IsNaN(log.Of("")) || !math.IsNaN((*XidCounter)(nil).Of("0000:0f:00.0")) {
		t.Error("something is known of no GPU, or by no log")
	}
}

// TestXidsOfAnotherFile checks that another file at the place of the kernel's log is not read. Some
// containers have one.
func TestXidsOfAnotherFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(file, []byte("4,1,1,-;NVRM: Xid (PCI:0000:0f:00): 79\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "none", "/dev/null"} {
		if log, err := OpenXids(path); err == nil || log != nil {
			t.Errorf("%s is taken for the kernel's log: %v", path, err)
		}
	}
	switch log, err := OpenXids(Kmsg); {
	case err != nil:
		t.Logf("this user may not read the kernel's log: %v", err)
	case log.Of("ffff:ff:00.0") != 0:
		t.Error("a GPU that there is not has had errors")
	default:
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
