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
	// maxPages bounds what is kept of a process between two calls of forget: 16 MiB.
	maxPages = 4096
	// maxBytes bounds what is asked of a process's memory in all, and so what is allocated for it: what leads in a circle ends there.
	maxBytes = 16 << 20
	// maxKept bounds the memory, in bytes, that waits for the next process.
	maxKept = 2 << 20
	// maxRead bounds one read, in bytes.
	maxRead = 64 << 10
)

var (
	errTooMuch  = errors.New("there is too much to read in the process's memory")
	errReplaced = errors.New("the program of the process has ended meanwhile")
)

// memory is that of another process, page by page. What was read is remembered, so that neighbours cost nothing and agree.
type memory struct {
	// fetch fills a page from an address that is a multiple of its size.
	fetch func(addr uint64, page []byte) error
	// over says why nobody waits for more any longer; nil while somebody does.
	over  func() error
	pages map[uint64]int // the page at an address, by its place in slab
	slab  []byte
	left  int // of maxBytes
}

var memories = sync.Pool{New: func() any { return &memory{pages: make(map[uint64]int)} }}

// borrow is a memory that release gives back. Nothing is read of it once ctx has ended.
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

// forget has the next reads see the memory as it is then.
func (m *memory) forget() {
	clear(m.pages)
	m.slab = m.slab[:0]
}

// opened is the memory of the program that a process ran when it was opened, and of no other: that of what it runs later (execve(2)), or
// of a later process with its number, is not there. It is a descriptor.
type opened int

// open opens the memory of what a process runs. The kernel refuses a process that this one may not look into (ptrace(2)).
func open(pid int) (opened, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return opened(fd), err
}

func (o opened) close() { _ = unix.Close(int(o)) } // nothing was written

// page fills one (proc_pid_mem(5)).
func (o opened) page(addr uint64, page []byte) error {
	n, err := unix.Pread(int(o), page, int64(addr))
	switch {
	case err == nil && n == 0:
		return errReplaced
	case err == nil && n < len(page) || errors.Is(err, unix.EIO):
		return unix.EFAULT
	}
	return err
}

// page is the one at an address, until the next is read.
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

// spend refuses to read n bytes at an address where that is too much, or nobody waits for them. Once it is too much it remains so.
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

// text is the beginning of a string that ends with a zero.
func (m *memory) text(addr uint64, most int) string {
	for n := most; n > 0; n /= 2 { // a page that follows may not be there
		if b, err := m.bytes(addr, n); err == nil {
			text, _, _ := bytes.Cut(b, []byte{0})
			return string(text)
		}
	}
	return ""
}
