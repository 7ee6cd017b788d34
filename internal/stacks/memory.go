package stacks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	pageSize = 4096
	// maxPages bounds what is read of a process between two calls of forget: 16 MiB.
	maxPages = 4096
	// maxKept bounds the memory, in bytes, that waits for the next process.
	maxKept = 2 << 20
	// maxReads bounds how often: what leads in a circle ends there.
	maxReads = 1 << 20
	// maxRead bounds one read, in bytes.
	maxRead = 64 << 10
)

var errTooMuch = errors.New("there is too much to read in the process's memory")

// memory is that of another process, page by page. What was read is remembered, so that neighbours cost nothing and agree.
type memory struct {
	// fetch fills a page from an address that is a multiple of its size.
	fetch func(addr uint64, page []byte) error
	pages map[uint64]int // the page at an address, by its place in slab
	slab  []byte
	reads int
}

var memories = sync.Pool{New: func() any { return &memory{pages: make(map[uint64]int)} }}

// borrow is a memory that release gives back.
func borrow(fetch func(addr uint64, page []byte) error) *memory {
	m := memories.Get().(*memory)
	m.fetch = fetch
	m.forget()
	return m
}

func (m *memory) release() {
	if m.fetch = nil; cap(m.slab) > maxKept {
		return
	}
	memories.Put(m)
}

// forget has the next reads see the memory as it is then.
func (m *memory) forget() {
	clear(m.pages)
	m.slab = m.slab[:0]
	m.reads = 0
}

// of reads the memory of a process (process_vm_readv(2)).
func of(pid int) func(addr uint64, page []byte) error {
	return func(addr uint64, page []byte) error {
		local := []unix.Iovec{{Base: &page[0], Len: uint64(len(page))}}
		remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(page)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err == nil && n != len(page) {
			err = unix.EFAULT
		}
		return err
	}
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

// read fills b from an address.
func (m *memory) read(addr uint64, b []byte) error {
	if len(b) > maxRead || addr < pageSize || addr+uint64(len(b)) < addr {
		return fmt.Errorf("%d bytes at %#x are no object: %w", len(b), addr, unix.EFAULT)
	}
	if m.reads++; m.reads > maxReads {
		return errTooMuch
	}
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
	if n < 0 || n > maxRead {
		return nil, errTooMuch
	}
	b := make([]byte, n)
	return b, m.read(addr, b)
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
