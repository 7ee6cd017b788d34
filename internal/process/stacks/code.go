package stacks

import (
	"strings"
	"unicode/utf16"
)

const (
	maxCharacters = 4096 // characters of a string
	maxLength     = 1 << 28
	// maxCode bounds the instructions of a function, in bytes.
	maxCode = 1 << 26
)

// code is a Python code object.
type code struct {
	file, name   string
	first        int
	lines        []byte
	instructions uint64
}

// reader reads the stacks of one process.
type reader struct {
	*memory
	layout
	pid int
	// known has the frames of reported calls, as they were last read; a frame is empty if it is
	// unknown.
	known map[position]Frame
	class uint64 // of code objects, once known
}

// position identifies an instruction in a function.
type position struct{ code, instruction uint64 }

// learn reads the frames of the calls that will be reported.
func (r *reader) learn(stacks []stack) {
	r.known = make(map[position]Frame)
	for _, s := range stacks[:min(len(stacks), maxThreads)] {
		for i, c := range s.calls {
			at := position{c.code, c.instruction}
			if _, ok := r.known[at]; !ok && !s.hidden(i) {
				r.known[at] = r.frameAt(at)
			}
		}
	}
}

// frameAt keeps no more of a line table than the current line: a process may have as many tables as
// calls.
func (r *reader) frameAt(at position) Frame {
	co := r.codeAt(at.code)
	if co == nil {
		return Frame{}
	}
	return Frame{Function: co.name, File: co.file, Line: co.line(at.instruction, r.minor)}
}

// codeAt returns nil if there is no code object.
func (r *reader) codeAt(at uint64) *code {
	class, err := r.word(at + r.layout.class)
	if err != nil || !r.isCode(class) {
		return nil
	}
	co := &code{file: r.stringAt(at + r.file), name: clean(r.stringAt(at + r.qualname)), instructions: at + r.layout.instructions}
	if r.layout.instructions == 0 {
		co.instructions = 0
	}
	if tail := len(co.file) - maxName/2; tail > 0 {
		co.file = "…" + strings.ToValidUTF8(co.file[tail:], "")
	}
	co.file = clean(co.file)
	first, err := r.half(at + r.firstLine)
	if err != nil || co.name == "" {
		return nil
	}
	co.first = int(int32(first))
	co.lines = r.bytesAt(at + r.layout.lines)
	return co
}

// isCode reports whether a class is the class of code objects.
func (r *reader) isCode(class uint64) bool {
	if r.class == 0 {
		name, err := r.word(class + r.className)
		if err != nil || r.text(name, len("code\x00")) != "code" {
			return false
		}
		r.class = class
	}
	return class == r.class
}

// bytesAt returns the bytes object that a pointer leads to, or nil.
func (r *reader) bytesAt(pointer uint64) []byte {
	at, err := r.word(pointer)
	if err != nil {
		return nil
	}
	size, err := r.word(at + r.size)
	if err != nil || size > maxRead {
		return nil
	}
	b, err := r.bytes(at+r.data, int(size))
	if err != nil {
		return nil
	}
	return b
}

// stringAt returns the string that a pointer leads to, or an empty string.
func (r *reader) stringAt(pointer uint64) string {
	at, err := r.word(pointer)
	if err != nil {
		return ""
	}
	state, err := r.half(at + r.state)
	if err != nil {
		return ""
	}
	length, err := r.word(at + r.length)
	if err != nil || length > maxLength {
		return ""
	}
	wide, compact, ascii := int(state>>2&7), state>>5&1 == 1, state>>6&1 == 1
	data := at + r.characters
	if ascii {
		data = at + r.ascii
	}
	if !compact || wide != 1 && wide != 2 && wide != 4 {
		return ""
	}
	b, err := r.bytes(data, wide*int(min(length, maxCharacters)))
	if err != nil {
		return ""
	}
	return decode(b, wide)
}

// decode decodes characters of 1, 2 or 4 bytes. It replaces halves of surrogates, which Python uses
// for bytes that are not UTF-8.
func decode(b []byte, wide int) string {
	var text strings.Builder
	for ; len(b) >= wide; b = b[wide:] {
		var r rune
		for i := range wide {
			r |= rune(b[i]) << (8 * i)
		}
		if utf16.IsSurrogate(r) {
			r = '\uFFFD'
		}
		text.WriteRune(r)
	}
	return text.String()
}
