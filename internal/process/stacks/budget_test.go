package stacks

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// crowd is the memory of a Python 3.10 with many threads, each with as many calls of functions of
// their own. All functions share their name and a line table of some length.
type crowd struct{ threads, calls, table int }

// Addresses of the structures. They are close together, and few pages have all of them.
const (
	theRuntime, theInterpreter, theClass, theName, theTable = 0x10000, 0x11000, 0x12000, 0x13000, 0x20000

	states, frameObjects, codeObjects = 1 << 24, 1 << 28, 1 << 32

	spacing = 128
)

// word returns the word at an address that is a multiple of 8.
func (c crowd) word(addr uint64) uint64 {
	all := uint64(c.threads * c.calls)
	switch {
	case addr == theRuntime+32:
		return theInterpreter
	case addr == theInterpreter+8:
		return states
	case addr == theClass+24:
		return theClass + 1024
	case addr == theClass+1024, addr == theName+48:
		return binary.LittleEndian.Uint64([]byte("code\x00\x00\x00\x00"))
	case addr == theName+16:
		return 4
	case addr == theName+32:
		return 1<<2 | 1<<5 | 1<<6 // one byte per character, in one piece, ASCII
	case addr == theTable+16:
		return uint64(c.table)
	case addr >= theTable+32 && addr < theTable+32+maxRead:
		return 0x0101010101010101
	case addr >= states && addr < states+uint64(c.threads)*4*spacing:
		return c.state((addr-states)/(4*spacing), addr%(4*spacing))
	case addr >= frameObjects && addr < frameObjects+all*spacing:
		return c.frame((addr-frameObjects)/spacing, addr%spacing)
	case addr >= codeObjects && addr < codeObjects+all*spacing:
		return map[uint64]uint64{8: theClass, 40: 7, 104: theName, 112: theName, 120: theTable}[addr%spacing]
	}
	return 0
}

// state returns a member of a thread's structure.
func (c crowd) state(i, member uint64) uint64 {
	switch {
	case member == 8 && i+1 < uint64(c.threads):
		return states + (i+1)*4*spacing
	case member == 16:
		return theInterpreter
	case member == 24:
		return frameObjects + i*uint64(c.calls)*spacing
	}
	return 0
}

// frame returns a member of a call's frame.
func (c crowd) frame(i, member uint64) uint64 {
	switch {
	case member == 24 && (i+1)%uint64(c.calls) > 0:
		return frameObjects + (i+1)*spacing
	case member == 32:
		return codeObjects + i*spacing
	}
	return 0
}

func (c crowd) page(addr uint64, page []byte) error {
	if addr < theRuntime {
		return unix.EFAULT
	}
	for i := uint64(0); i < pageSize; i += 8 {
		binary.LittleEndian.PutUint64(page[i:], c.word(addr+i))
	}
	return nil
}

// TestCrowd has more threads and calls than are reported: the functions of unreported calls are not
// read.
func TestCrowd(t *testing.T) {
	c := crowd{threads: 2 * maxThreads, calls: maxFrames + 33, table: 2}
	read := map[uint64]bool{}
	m := borrow(t.Context(), c.page)
	defer m.release()
	in := interpreter{layouts[10], theRuntime}
	r := &reader{memory: m, layout: in.layout}
	if _, err := r.steady(theRuntime); err != nil || len(r.known) != maxThreads*maxFrames {
		t.Errorf("%d calls were read: %v", len(r.known), err)
	}
	for at := range r.known {
		read[at.code] = true
	}
	if len(read) != maxThreads*maxFrames {
		t.Errorf("%d functions were read", len(read))
	}
	m.left = maxBytes
	threads, cut, err := in.read(0, m)
	if err != nil || !cut || len(threads) != maxThreads {
		t.Fatalf("%d threads (cut: %v): %v", len(threads), cut, err)
	}
	for _, th := range threads {
		if f := th.Frames; len(f) != maxFrames+1 || f[0] != (Frame{"code", "code", 8}) || f[maxFrames/2] != (Frame{Function: leftOut, Line: 33}) {
			t.Fatalf("the frames are %v", f)
		}
	}
}

// TestSharedTable has functions that share the longest table: reads and allocations for all of them
// are bounded.
func TestSharedTable(t *testing.T) {
	c := crowd{threads: maxThreads, calls: maxFrames, table: maxRead}
	pages := 0
	m := borrow(t.Context(), func(addr uint64, page []byte) error {
		pages++
		return c.page(addr, page)
	})
	defer m.release()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := interpreter{layouts[10], theRuntime}.read(0, m)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errTooMuch) || allocated > 5*maxBytes || pages > 2*maxPages {
		t.Errorf("%d MiB were allocated and %d pages read: %v", allocated>>20, pages, err)
	}
}

// TestReadingEndsWithItsContext: the context ends while the memory is being read.
func TestReadingEndsWithItsContext(t *testing.T) {
	c := crowd{threads: maxThreads, calls: maxFrames, table: 2}
	for _, after := range []int{1, 10, 400} {
		ctx, cancel := context.WithCancel(t.Context())
		pages := 0
		m := borrow(ctx, func(addr uint64, page []byte) error {
			if pages++; pages == after {
				cancel()
			}
			return c.page(addr, page)
		})
		_, _, err := interpreter{layouts[10], theRuntime}.read(0, m)
		if m.release(); !errors.Is(err, context.Canceled) || pages != after {
			t.Errorf("%d pages were read, the last %d of them for no process: %v", pages, pages-after, err)
		}
		cancel()
	}
}
