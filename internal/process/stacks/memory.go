package stacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	pageSize = 4096
	// maxPages bounds the pages kept between two calls of forget: 16 MiB.
	maxPages = 4096
	// maxBytes bounds all reads of a process's memory together, so that a walk in a circle ends.
	maxBytes = 16 << 20
	// maxKept bounds the reused memory in bytes.
	maxKept = 2 << 20
	// maxRead bounds one read in bytes.
	maxRead = 64 << 10
)

var (
	errTooMuch  = errors.New("the process's memory has too much to read")
	errReplaced = errors.New("the process's program has ended")
)

// memory caches the memory of another process page by page, so that repeated reads cost nothing and
// agree.
type memory struct {
	// fetch fills the page at an address.
	fetch func(addr uint64, page []byte) error
	// over returns the reason why reading should end, or nil.
	over  func() error
	pages map[uint64]int // the place of a page in slab, by the page's address
	slab  []byte
	left  int // bytes of maxBytes that may still be read
}

var memories = sync.Pool{New: func() any { return &memory{pages: make(map[uint64]int)} }}

// borrow returns a memory that release gives back. It reads nothing once ctx has ended.
func borrow(ctx context.Context, fetch func(addr uint64, page []byte) error) *memory {
	m := memories.Get().(*memory)
	m.fetch, m.over, m.left = fetch, ctx.Err, maxBytes
	m.forget()
	return m
}

func (m *memory) release() {
	if m.fetch, m.over = nil, nil; cap(m.slab) > maxKept {
		return
	}
	memories.Put(m)
}

// forget makes the next reads fetch pages again.
func (m *memory) forget() {
	clear(m.pages)
	m.slab = m.slab[:0]
}

// openMemory is a descriptor of the memory of the program that a process ran when open was called.
// It does not give access to a later program (execve(2)) or a later process with the same number.
type openMemory int

// open opens the memory of a process. The kernel refuses processes that this one may not trace
// (ptrace(2)).
func open(pid int) (openMemory, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return openMemory(fd), err
}

func (o openMemory) close() { _ = unix.Close(int(o)) } // nothing was written

// page fills a page from the process's memory (proc_pid_mem(5)).
func (o openMemory) page(addr uint64, page []byte) error {
	n, err := unix.Pread(int(o), page, int64(addr))
	switch {
	case err == nil && n == 0:
		return errReplaced
	case err == nil && n < len(page) || errors.Is(err, unix.EIO):
		return unix.EFAULT
	}
	return err
}

// page returns the page at an address, which is valid until the next call.
func (m *memory) page(addr uint64) ([]byte, error) {
	if at, ok := m.pages[addr]; ok {
		return m.slab[at : at+pageSize], nil
	}
	if len(m.pages) >= maxPages {
		return nil, errTooMuch
	}
	at := len(m.slab)
	m.slab = slices.Grow(m.slab, pageSize)[:at+pageSize]
	if err := m.fetch(addr, m.slab[at:]); err != nil {
		m.slab = m.slab[:at]
		return nil, err
	}
	m.pages[addr] = at
	return m.slab[at:], nil
}

// spend counts n bytes. Once the bound is exceeded or no caller waits, it refuses this and all
// later reads.
func (m *memory) spend(addr uint64, n int) error {
	if n < 0 || n > maxRead || addr < pageSize || addr+uint64(n) < addr {
		return fmt.Errorf("%d bytes at %#x are no object: %w", n, addr, unix.EFAULT)
	}
	if m.left -= n; m.left < 0 {
		return errTooMuch
	}
	return m.over()
}

// read fills b from an address.
func (m *memory) read(addr uint64, b []byte) error {
	if err := m.spend(addr, len(b)); err != nil {
		return err
	}
	return m.fill(addr, b)
}

func (m *memory) fill(addr uint64, b []byte) error {
	for len(b) > 0 {
		at := addr % pageSize
		page, err := m.page(addr - at)
		if err != nil {
			return err
		}
		n := copy(b, page[at:])
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}

func (m *memory) bytes(addr uint64, n int) ([]byte, error) {
	if err := m.spend(addr, n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, m.fill(addr, b)
}

func (m *memory) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := m.read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func (m *memory) half(addr uint64) (uint32, error) {
	var b [4]byte
	err := m.read(addr, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// text returns the beginning of a zero-terminated string.
func (m *memory) text(addr uint64, most int) string {
	for n := most; n > 0; n /= 2 { // the next page may not be mapped
		if b, err := m.bytes(addr, n); err == nil {
			text, _, _ := bytes.Cut(b, []byte{0})
			return string(text)
		}
	}
	return ""
}
