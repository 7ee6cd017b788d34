package stacks

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// layout has the offsets, in bytes, of the members of CPython's structures that lead to a stack.
type layout struct {
	major, minor int
	// The runtime and an interpreter.
	interpreters, nextInterpreter, threads uint64
	// The interpreter lock is in the runtime, or in a structure to which an interpreter has a
	// pointer at lock.
	lock, holder, locked uint64
	lockOfInterpreter    bool
	// A thread. With cFrames, the thread points to a C frame, and cFrame is the offset in it of the
	// pointer to the frame. native is 0 if the thread does not have its kernel number.
	nextThread, interpreter, frame, thread, native uint64
	cFrames                                        bool
	cFrame                                         uint64
	// A frame. owner is 0 if frames of the version have no owner. A frame whose owner is shim or
	// above runs no code.
	code, back, instruction, owner uint64
	shim                           byte
	// A code object. instructions is 0 if a frame has the index of the instruction instead of its
	// address.
	file, qualname, lines, firstLine, instructions uint64
	// Objects, types, bytes and strings: where the characters are if they are ASCII, and if not.
	class, className, size, data     uint64
	state, length, ascii, characters uint64
}

// layouts were computed by a compiler from the headers of each version. They do not change within a
// minor version, because compiled modules depend on them.
var layouts = map[int]layout{
	9: {
		major: 3, minor: 9, interpreters: 32, nextInterpreter: 0, threads: 8, holder: 360, locked: 368,
		nextThread: 8, interpreter: 16, frame: 24, thread: 176,
		code: 32, back: 24, instruction: 104,
		file: 104, qualname: 112, lines: 120, firstLine: 40,
		class: 8, className: 24, size: 16, data: 32, state: 32, length: 16, ascii: 48, characters: 72,
	},
	10: {
		major: 3, minor: 10, interpreters: 32, nextInterpreter: 0, threads: 8, holder: 360, locked: 368,
		nextThread: 8, interpreter: 16, frame: 24, thread: 176,
		code: 32, back: 24, instruction: 96,
		file: 104, qualname: 112, lines: 120, firstLine: 40,
		class: 8, className: 24, size: 16, data: 32, state: 32, length: 16, ascii: 48, characters: 72,
	},
	11: {
		major: 3, minor: 11, interpreters: 40, nextInterpreter: 0, threads: 16, holder: 368, locked: 376,
		nextThread: 8, interpreter: 16, frame: 56, cFrames: true, cFrame: 8, thread: 152, native: 160,
		code: 32, back: 48, instruction: 56, owner: 69, shim: 3,
		file: 112, qualname: 128, lines: 136, firstLine: 72, instructions: 184,
		class: 8, className: 24, size: 16, data: 32, state: 32, length: 16, ascii: 48, characters: 72,
	},
	12: {
		major: 3, minor: 12, interpreters: 40, nextInterpreter: 0, threads: 72,
		lock: 384, lockOfInterpreter: true, holder: 8, locked: 16,
		nextThread: 8, interpreter: 16, frame: 56, cFrames: true, cFrame: 0, thread: 136, native: 144,
		code: 0, back: 8, instruction: 56, owner: 70, shim: 3,
		file: 112, qualname: 128, lines: 136, firstLine: 68, instructions: 192,
		class: 8, className: 24, size: 16, data: 32, state: 32, length: 16, ascii: 40, characters: 56,
	},
}

// published are the offsets that CPython publishes at the beginning of its runtime since 3.13, in
// words from the word after the version.
type published struct {
	interpreters, nextInterpreter, threads, lock, locks, locked, holder int
	nextThread, interpreter, frame, thread, native                      int
	back, code, instruction, owner                                      int
	file, qualname, lines, firstLine, instructions                      int
	class, className, size, data, state, length, ascii                  int
}

var publications = map[int]published{
	13: {
		interpreters: 3, nextInterpreter: 6, threads: 7, lock: 12, locks: 13, locked: 15, holder: 16,
		nextThread: 19, interpreter: 20, frame: 21, thread: 22, native: 23,
		back: 27, code: 28, instruction: 29, owner: 31,
		file: 33, qualname: 35, lines: 36, firstLine: 37, instructions: 41,
		class: 43, className: 45, size: 63, data: 64, state: 66, length: 67, ascii: 68,
	},
	14: {
		interpreters: 3, nextInterpreter: 6, threads: 7, lock: 13, locks: 14, locked: 16, holder: 17,
		nextThread: 22, interpreter: 23, frame: 24, thread: 25, native: 26,
		back: 30, code: 31, instruction: 32, owner: 34,
		file: 38, qualname: 40, lines: 41, firstLine: 42, instructions: 46,
		class: 49, className: 51, size: 73, data: 74, state: 76, length: 77, ascii: 78,
	},
}

const (
	cookie    = "xdebugpy"
	words     = 80      // words that CPython publishes
	maxOffset = 1 << 20 // offset of a member
)

var errFreeThreaded = errors.New("it is a build without the GIL")

// unknown is the error for a version that this package cannot read.
func unknown(minor int) error { return fmt.Errorf("the memory of Python 3.%d is not known", minor) }

// layoutAt returns the layout that a runtime publishes, or the layout of its version.
func layoutAt(m *memory, runtime uint64, minor int) (layout, error) {
	b, err := m.bytes(runtime, 16+8*words)
	if err != nil {
		return layout{}, err
	}
	if string(b[:8]) == cookie {
		return publishedLayout(b[8:])
	}
	if _, ok := publications[minor]; ok {
		return layout{}, errNone // the loader has not mapped it yet
	}
	l, ok := layouts[minor]
	if !ok {
		return layout{}, unknown(minor)
	}
	return l, nil
}

func publishedLayout(b []byte) (layout, error) {
	version := binary.LittleEndian.Uint64(b)
	var at [words]uint64
	for i := range at {
		at[i] = binary.LittleEndian.Uint64(b[8+8*i:])
		if i > 3 {
			at[i] = min(at[i], maxOffset)
		}
	}
	minor := int(version >> 16 & 0xff)
	p, ok := publications[minor]
	switch {
	case version>>24 != 3 || !ok:
		return layout{}, unknown(minor)
	case at[0] != 0:
		return layout{}, errFreeThreaded
	}
	return layout{
		major: 3, minor: minor,
		interpreters: min(at[p.interpreters], maxOffset), nextInterpreter: at[p.nextInterpreter], threads: at[p.threads],
		lock: at[p.lock], lockOfInterpreter: true, holder: at[p.holder] - at[p.locks], locked: at[p.locked] - at[p.locks],
		nextThread: at[p.nextThread], interpreter: at[p.interpreter], frame: at[p.frame], thread: at[p.thread], native: at[p.native],
		code: at[p.code], back: at[p.back], instruction: at[p.instruction], owner: at[p.owner], shim: 3,
		file: at[p.file], qualname: at[p.qualname], lines: at[p.lines], firstLine: at[p.firstLine],
		instructions: at[p.instructions], class: at[p.class], className: at[p.className], size: at[p.size], data: at[p.data],
		state: at[p.state], length: at[p.length], ascii: at[p.ascii], characters: at[p.ascii] + 16,
	}, nil
}
