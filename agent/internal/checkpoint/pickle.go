package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
)

// extents are how long the files that a DCP metadata file lists must be at least.
type extents map[string]int64

// pickled reads the extents from a metadata file, which is a pickle of torch's Metadata. It runs
// the machine of Python's pickletools with values that are only strings, numbers and the fields of
// _StorageInfo. It never calls or imports anything: every other object is nothing.
func pickled(text []byte) (found extents, err error) {
	m := machine{text: text, found: extents{}}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case errPickle:
			err = r
		case errLarge:
			err = errPartly
		default:
			panic(r)
		}
	}()
	m.run()
	if len(m.found) == 0 {
		return nil, errPickle("it lists no file")
	}
	return m.found, nil
}

type errPickle string

func (e errPickle) Error() string { return string(e) }

// errLarge says that a pickle has more values than this package keeps.
type errLarge struct{}

// maxValues bounds the values of a pickle that are kept at a time. A byte can be one.
const maxValues = 1 << 22

var errCut = errPickle("it is cut short")

// machine is a pickle machine. A value is nil, a string, an int64, a class or a *fields.
type machine struct {
	text  []byte
	at    int
	stack []any
	marks []int
	memo  []any
	found extents
}

// class is the name of a class, and of an object of it.
type class string

// fields are those fields of a dict that _StorageInfo has.
type fields struct {
	path           string
	offset, length int64
}

func (m *machine) run() {
	if len(m.text) < 3 || m.text[0] != 0x80 || m.text[len(m.text)-1] != '.' {
		panic(errCut)
	}
	for m.step() {
	}
	if m.at != len(m.text) {
		panic(errPickle("something follows its end"))
	}
}

// step runs one instruction, and reports whether more may follow.
func (m *machine) step() bool {
	if len(m.stack)+len(m.marks)+len(m.memo) > maxValues {
		panic(errLarge{})
	}
	switch op := m.take(1)[0]; op {
	case '.':
		m.pop()
		return false
	case 0x80: // PROTO
		m.take(1)
	case 0x95: // FRAME
		m.take(8)
	case '(':
		m.marks = append(m.marks, len(m.stack))
	case '0':
		m.pop()
	case '1':
		m.cut()
	case 'N', 0x88, 0x89, ')', ']', 0x8f:
		m.push(nil)
	case '}':
		m.push(&fields{})
	case 'K':
		m.push(int64(m.take(1)[0]))
	case 'M':
		m.push(int64(binary.LittleEndian.Uint16(m.take(2))))
	case 'J':
		m.push(int64(int32(binary.LittleEndian.Uint32(m.take(4)))))
	case 0x8a: // LONG1
		m.push(long(m.take(int(m.take(1)[0]))))
	case 'G':
		m.take(8)
		m.push(nil)
	case 0x8c: // SHORT_BINUNICODE
		m.push(string(m.take(int(m.take(1)[0]))))
	case 'X':
		m.push(string(m.take(m.size(4))))
	case 0x8d: // BINUNICODE8
		m.push(string(m.take(m.size(8))))
	case 'C', 'U':
		m.take(int(m.take(1)[0]))
		m.push(nil)
	case 'B', 'T':
		m.take(m.size(4))
		m.push(nil)
	case 'c':
		m.line()
		m.push(class(m.line()))
	case 0x93: // STACK_GLOBAL
		name, _ := m.pop().(string)
		m.pop()
		m.push(class(name))
	case 0x94: // MEMOIZE
		m.store(len(m.memo))
	case 'q':
		m.store(int(m.take(1)[0]))
	case 'r':
		m.store(m.size(4))
	case 'h':
		m.push(m.remember(int(m.take(1)[0])))
	case 'j':
		m.push(m.remember(m.size(4)))
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		for range op - 0x84 {
			m.pop()
		}
		m.push(nil)
	case 't', 'l', 'd', 0x91:
		m.cut()
		m.push(nil)
	case 'a':
		m.pop()
	case 'e', 0x90:
		m.cut()
		m.top()
	case 's':
		value, key := m.pop(), m.pop()
		m.set([]any{key, value})
	case 'u':
		m.set(m.cut())
	case 'R':
		m.pop()
		m.pop()
		m.push(nil)
	case 0x81: // NEWOBJ
		m.pop()
	case 0x92: // NEWOBJ_EX
		m.pop()
		m.pop()
	case 'b':
		m.build(m.pop())
	default:
		panic(errPickle(fmt.Sprintf("it has an instruction %#x that golaunch does not know", op)))
	}
	return true
}

// set sets pairs of keys and values in the dict on the top of the stack.
func (m *machine) set(pairs []any) {
	into, ok := m.top().(*fields)
	for i := 0; ok && i+1 < len(pairs); i += 2 {
		switch key, _ := pairs[i].(string); key {
		case "relative_path":
			into.path, _ = pairs[i+1].(string)
		case "offset":
			into.offset, _ = pairs[i+1].(int64)
		case "length":
			into.length, _ = pairs[i+1].(int64)
		}
	}
}

// build gives an object its fields.
func (m *machine) build(state any) {
	of, _ := m.top().(class)
	f, ok := state.(*fields)
	if of != "_StorageInfo" || !ok {
		return
	}
	if f.path == "" || f.offset < 0 || f.length < 0 || f.offset > math.MaxInt64-f.length {
		panic(errPickle("it lists a part of a file without a place"))
	}
	m.found[f.path] = max(m.found[f.path], f.offset+f.length)
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// bottom is the lowest value that instructions may use: they do not look below a mark.
func (m *machine) bottom() int {
	if n := len(m.marks); n > 0 {
		return m.marks[n-1]
	}
	return 0
}

func (m *machine) top() any {
	if len(m.stack) <= m.bottom() {
		panic(errPickle("it uses a value that is not there"))
	}
	return m.stack[len(m.stack)-1]
}

func (m *machine) pop() any {
	v := m.top()
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// cut removes what is above the last mark.
func (m *machine) cut() []any {
	if len(m.marks) == 0 {
		panic(errPickle("it uses a mark that is not there"))
	}
	from := m.bottom()
	m.marks = m.marks[:len(m.marks)-1]
	above := m.stack[from:]
	m.stack = m.stack[:from]
	return above
}

// store notes the value on the top of the stack under a number. Pickles count these from 0.
func (m *machine) store(i int) {
	if i > maxValues {
		panic(errLarge{})
	}
	for len(m.memo) <= i {
		m.memo = append(m.memo, nil)
	}
	m.memo[i] = m.top()
}

func (m *machine) remember(i int) any {
	if i >= len(m.memo) {
		panic(errPickle("it uses a value that it has not stored"))
	}
	return m.memo[i]
}

func (m *machine) take(n int) []byte {
	if n < 0 || n > len(m.text)-m.at {
		panic(errCut)
	}
	part := m.text[m.at : m.at+n]
	m.at += n
	return part
}

// size reads a length of some bytes.
func (m *machine) size(width int) int {
	n := uint64(0)
	for i, b := range m.take(width) {
		n |= uint64(b) << (8 * i)
	}
	if n > uint64(len(m.text)) {
		panic(errCut)
	}
	return int(n)
}

func (m *machine) line() string {
	for i := m.at; i < len(m.text); i++ {
		if m.text[i] == '\n' {
			return string(m.take(i + 1 - m.at)[:i-m.at])
		}
	}
	panic(errCut)
}

// long reads a little-endian number in two's complement; -1 for one that has no place in a file.
func long(text []byte) int64 {
	if len(text) > 8 {
		return -1
	}
	n := uint64(0)
	for i, b := range text {
		n |= uint64(b) << (8 * i)
	}
	if len(text) > 0 && text[len(text)-1]&0x80 != 0 {
		return -1
	}
	return int64(n)
}
