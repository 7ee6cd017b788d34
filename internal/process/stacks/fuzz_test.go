package stacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// recording has the pages of a process that this package has read, and the place of its Python in
// these pages.
type recording struct {
	pages map[uint64][]byte
	base  uint64
	minor int
}

// record reads a process of each Python version.
func record(tb testing.TB) (recordings []recording) {
	tb.Helper()
	for _, python := range pythons(tb) {
		p := start(tb, python, "testdata/program.py", "deep", "Größe")
		pid := p.Process.Pid
		r := recording{pages: make(map[uint64][]byte)}
		memory, err := open(pid)
		if err != nil {
			tb.Fatal(err)
		}
		keep := func(addr uint64, page []byte) error {
			err := memory.page(addr, page)
			if err == nil {
				r.pages[addr] = bytes.Clone(page)
			}
			return err
		}
		maps, err := readLarge(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			tb.Fatal(err)
		}
		files, minor := mapped(maps, "")
		r.base, r.minor = files[0].base, minor
		r.frames(tb, keep)
		memory.close()
		recordings = append(recordings, r)
	}
	return recordings
}

// frames returns the frames of the main thread, which is the last in the interpreter's list.
func (r recording) frames(tb interface{ Fatal(...any) }, fetch func(uint64, []byte) error) []Frame {
	m := borrow(context.Background(), fetch)
	defer m.release()
	in, _, err := interpreterIn(m, r.base, r.minor)
	if err != nil {
		return nil
	}
	known := &reader{memory: m, layout: in.layout}
	stacks, err := known.steady(in.runtime)
	if err != nil || len(stacks) == 0 {
		return nil
	}
	var last []Frame
	for _, s := range stacks[:min(len(stacks), maxThreads)] {
		last, _ = known.frames(s)
		if len(last) > maxFrames+1 {
			tb.Fatal("there are too many frames: ", len(last))
		}
		for _, f := range last {
			if len(f.Function) > maxName || len(f.File) > maxName || !utf8.ValidString(f.Function) || f.Line < 0 {
				tb.Fatal(fmt.Sprintf("%+v is no frame", f))
			}
		}
	}
	if len(m.pages) > maxPages || len(known.known) > maxThreads*maxFrames {
		tb.Fatal("too much was read: ", len(m.pages), len(known.known))
	}
	return last
}

// patched returns the memory of a recording with changed words. A patch has 2 bytes for the page, 2
// for the place in the page, and 8 for the new value, which points to a page of the recording if
// its lowest byte is odd.
func (r recording) patched(patches []byte) func(addr uint64, page []byte) error {
	addresses := slices.Sorted(maps.Keys(r.pages))
	pages := maps.Clone(r.pages)
	for ; len(patches) >= 12; patches = patches[12:] {
		at := addresses[int(binary.LittleEndian.Uint16(patches))%len(addresses)]
		value := binary.LittleEndian.Uint64(patches[4:])
		if value&1 == 1 {
			value = addresses[int(value>>1%uint64(len(addresses)))] + value>>32%pageSize
		}
		page := bytes.Clone(pages[at])
		binary.LittleEndian.PutUint64(page[binary.LittleEndian.Uint16(patches[2:])%(pageSize-8):], value)
		pages[at] = page
	}
	return func(addr uint64, page []byte) error {
		if pages[addr] == nil {
			return unix.EFAULT
		}
		copy(page, pages[addr])
		return nil
	}
}

// FuzzMemory reads the memory of real processes after random changes.
func FuzzMemory(f *testing.F) {
	recordings := record(f)
	f.Add(0, []byte{})
	for i := range recordings {
		f.Add(i, []byte{3, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which int, patches []byte) {
		r := recordings[(which%len(recordings)+len(recordings))%len(recordings)]
		got := r.frames(t, r.patched(patches[:min(len(patches), 12*256)]))
		if len(patches) == 0 && (len(got) != 2 || got[0].Function != "<module>" || got[1].Function != "main") {
			t.Errorf("the frames are %v", got)
		}
	})
}

func TestAnyMemory(t *testing.T) {
	recordings := record(t)
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(recordings).Draw(t, "recording")
		var patches []byte
		for range rapid.IntRange(1, 8).Draw(t, "patches") {
			patches = binary.LittleEndian.AppendUint16(patches, rapid.Uint16().Draw(t, "page"))
			patches = binary.LittleEndian.AppendUint16(patches, rapid.Uint16().Draw(t, "place"))
			patches = binary.LittleEndian.AppendUint64(patches, rapid.Uint64().Draw(t, "value"))
		}
		r.frames(t, r.patched(patches))
	})
}

// TestCircle has lists that never end.
func TestCircle(t *testing.T) {
	l := layouts[10]
	page := make([]byte, pageSize)
	for i := range pageSize / 8 {
		binary.LittleEndian.PutUint64(page[8*i:], 0x10000) // every pointer leads back here
	}
	m := borrow(t.Context(), func(addr uint64, b []byte) error {
		if addr != 0x10000 {
			return unix.EFAULT
		}
		copy(b, page)
		return nil
	})
	defer m.release()
	if _, err := (&reader{memory: m, layout: l}).steady(0x10000); !errors.Is(err, errTooMuch) {
		t.Errorf("a circle ends with %v", err)
	}
}
