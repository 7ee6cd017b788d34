// Package gpulog reads what the NVIDIA driver writes to the kernel log about GPUs.
package gpulog

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/health"
)

// XidCounter counts the driver's errors (Xids) of each GPU since it was opened. A nil XidCounter
// knows none. Several goroutines may use it.
type XidCounter struct {
	mu     sync.Mutex
	fd     int
	counts map[string]int
	record []byte
}

const (
	// Kmsg is the kernel log as a device: each read(2) returns one record.
	Kmsg = "/dev/kmsg"
	// maxRecord is the longest record of the kernel log. maxRecords bounds one call; the next call
	// reads on.
	maxRecord  = 8 << 10
	maxRecords = 10_000
)

// OpenXids opens the kernel log at its end. It fails for users who may not read the log, and in
// containers without one.
func OpenXids(path string) (*XidCounter, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel log: %w", err)
	}
	var st unix.Stat_t
	// Some containers have another file there.
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 11) {
		return nil, errors.Join(fmt.Errorf("%s is not the kernel log", path), unix.Close(fd))
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the end of the kernel log: %w", err), unix.Close(fd))
	}
	return NewXids(fd), nil
}

// NewXids counts the records that a non-blocking descriptor returns, one for each read(2).
func NewXids(fd int) *XidCounter {
	return &XidCounter{fd: fd, counts: map[string]int{}, record: make([]byte, maxRecord)}
}

// Of returns how many errors a GPU has had, by its PCI address as sysfs writes it. The number is
// unknown without an address.
func (x *XidCounter) Of(pci string) float64 {
	if x == nil || pci == "" {
		return math.NaN()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read()
	at, _, _ := strings.Cut(pci, ".")
	return float64(x.counts[at])
}

func (x *XidCounter) read() {
	for range maxRecords {
		n, err := unix.Read(x.fd, x.record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // EPIPE: records were overwritten before they were read; the next read starts after them
		case err != nil || n == 0:
			return
		}
		for _, xid := range health.ParseXids(string(x.record[:n])) {
			at, _, _ := strings.Cut(xid.PCI, " ") // after the space is the instance of a split GPU
			x.counts[at]++
		}
	}
}

// Close closes the kernel log.
func (x *XidCounter) Close() error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	fd := x.fd
	x.fd = -1
	return unix.Close(fd)
}
