package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/host/samples"
)

// xidLog counts the errors (Xids) that the driver has told the kernel's log of each GPU since the log was opened. The nil xidLog knows
// nothing. It may be used by several goroutines.
type xidLog struct {
	mu     sync.Mutex
	fd     int
	counts map[string]int
	record []byte
}

const (
	kmsg = "/dev/kmsg"
	// maxRecord is the longest record of the kernel's log, with its prefix, and maxRecords are those that one look reads at most; the next
	// reads on.
	maxRecord  = 8 << 10
	maxRecords = 10_000
)

// openXids opens the kernel's log at its end. Not every user may, and a container may have none.
func openXids(path string) (*xidLog, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w", err)
	}
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil, st.Mode&unix.S_IFMT != unix.S_IFCHR, st.Rdev != unix.Mkdev(1, 11): // some containers have another file there
		err = fmt.Errorf("%s is not the kernel's log", path)
		return nil, errors.Join(err, unix.Close(fd))
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the end of the kernel's log: %w", err), unix.Close(fd))
	}
	return newXidLog(fd), nil
}

// newXidLog reads a record with each read(2), and does not wait for one.
func newXidLog(fd int) *xidLog {
	return &xidLog{fd: fd, counts: map[string]int{}, record: make([]byte, maxRecord)}
}

// of is how many errors a GPU has had, by its PCI address as sysfs writes it; unknown when it has none.
func (x *xidLog) of(pci string) float64 {
	if x == nil || pci == "" {
		return samples.Unknown
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read()
	at, _, _ := strings.Cut(pci, ".")
	return float64(x.counts[at])
}

// read takes what is new.
func (x *xidLog) read() {
	for range maxRecords {
		n, err := unix.Read(x.fd, x.record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // what was not read in time has been overwritten, and the next read has what follows
		case err != nil || n == 0:
			return
		}
		for _, xid := range health.ParseXids(string(x.record[:n])) {
			at, _, _ := strings.Cut(xid.PCI, " ") // what follows is the instance of a GPU that is split
			x.counts[at]++
		}
	}
}

func (x *xidLog) close() error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	fd := x.fd
	x.fd = -1
	return unix.Close(fd)
}
