// Package pickle reads Python's pickles. It never calls or imports anything. The caller's [Values]
// make Go values of the dicts and objects of a pickle.
package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Values make the tuples, dicts and objects of a pickle. Other values become a string, an int64, a
// float64 or a bool. None, lists, sets and strings of bytes become nil. Items and pairs are valid
// only during the call.
type Values interface {
	// Tuple makes a tuple of its items.
	Tuple(items []any) any
	// Dict makes an empty dict, and Set sets alternating keys and values in it. The first argument
	// of Set may also be something that Dict did not make.
	Dict() any
	Set(dict any, pairs []any)
	// Object makes an object of a class with the arguments of its constructor, and Build gives it
	// the state of its fields. The first argument of Build may also be something that Object did
	// not make.
	Object(class, args any) any
	Build(object, state any) error
}

// Class is the name of a class and of the module that defines it.
type Class struct{ Module, Name string }

// ErrLarge says that a pickle has more values than this package keeps at a time.
var ErrLarge = errors.New("the pickle has too many values")

// MaxValues bounds the values of a pickle that are kept at a time. A single byte can be a value.
const MaxValues = 1 << 22

// Read reads a pickle and returns its value. It runs the pickle machine of Python's pickletools.
func Read(text []byte, values Values) (value any, err error) {
	m := machine{text: text, values: values}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			value, err = nil, r.error
		default:
			panic(r)
		}
	}()
	return m.run(), nil
}

// failure says why a pickle cannot be read. The machine panics with it.
type failure struct{ error }

func bad(format string, args ...any) failure { return failure{fmt.Errorf(format, args...)} }

var (
	errCut     = failure{errors.New("it is cut short")}
	errMissing = failure{errors.New("it uses a value that is not there")}
)

// machine is a pickle machine.
type machine struct {
	text   []byte
	at     int
	values Values
	stack  []any
	marks  []int
	memo   []any
}

func (m *machine) run() any {
	if len(m.text) < 3 || m.text[0] != 0x80 || m.text[len(m.text)-1] != '.' {
		panic(errCut)
	}
	for m.step() {
	}
	if m.at != len(m.text) {
		panic(bad("something follows its end"))
	}
	return m.pop()
}

// step runs one instruction, and reports whether more may follow.
func (m *machine) step() bool {
	if len(m.stack)+len(m.marks)+len(m.memo) > MaxValues {
		panic(failure{ErrLarge})
	}
	switch op := m.take(1)[0]; op {
	case '.':
		m.top()
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
	default:
		if !m.scalar(op) && !m.collection(op) && !m.object(op) {
			panic(bad("it has an instruction %#x that golaunch does not know", op))
		}
	}
	return true
}

// scalar runs an instruction that pushes a value without parts, and reports whether op is such an
// instruction.
func (m *machine) scalar(op byte) bool {
	switch op {
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case 'K':
		m.push(int64(m.take(1)[0]))
	case 'M':
		m.push(int64(binary.LittleEndian.Uint16(m.take(2))))
	case 'J':
		m.push(int64(int32(binary.LittleEndian.Uint32(m.take(4)))))
	case 0x8a: // LONG1
		m.push(long(m.take(int(m.take(1)[0]))))
	case 'G':
		m.push(math.Float64frombits(binary.BigEndian.Uint64(m.take(8))))
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
	default:
		return false
	}
	return true
}

// collection runs an instruction of a list, a set, a tuple or a dict, and reports whether op is
// such an instruction.
func (m *machine) collection(op byte) bool {
	switch op {
	case ']', 0x8f: // a list and a set
		m.push(nil)
	case ')':
		m.push(m.values.Tuple(nil))
	case '}':
		m.push(m.values.Dict())
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		n := len(m.stack) - int(op-0x84)
		if n < m.bottom() {
			panic(errMissing)
		}
		tuple := m.values.Tuple(m.stack[n:])
		m.stack = m.stack[:n]
		m.push(tuple)
	case 't':
		m.push(m.values.Tuple(m.cut()))
	case 'l', 0x91: // a list and a frozenset
		m.cut()
		m.push(nil)
	case 'd':
		dict := m.values.Dict()
		m.set(dict, m.cut())
		m.push(dict)
	case 'a':
		m.pop()
	case 'e', 0x90:
		m.cut()
		m.top()
	case 's':
		value, key := m.pop(), m.pop()
		m.set(m.top(), []any{key, value})
	case 'u':
		pairs := m.cut()
		m.set(m.top(), pairs)
	default:
		return false
	}
	return true
}

// object runs an instruction of a class or an object, and reports whether op is such an
// instruction.
func (m *machine) object(op byte) bool {
	switch op {
	case 'c':
		module := m.line()
		m.push(Class{module, m.line()})
	case 0x93: // STACK_GLOBAL
		name, _ := m.pop().(string)
		module, _ := m.pop().(string)
		m.push(Class{module, name})
	case 'R', 0x81: // REDUCE and NEWOBJ
		args := m.pop()
		m.push(m.values.Object(m.pop(), args))
	case 0x92: // NEWOBJ_EX
		m.pop()
		args := m.pop()
		m.push(m.values.Object(m.pop(), args))
	case 'b':
		state := m.pop()
		if err := m.values.Build(m.top(), state); err != nil {
			panic(failure{err})
		}
	default:
		return false
	}
	return true
}

// set sets pairs of keys and values in a dict.
func (m *machine) set(dict any, pairs []any) {
	if len(pairs)%2 != 0 {
		panic(bad("it has a key without a value"))
	}
	m.values.Set(dict, pairs)
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// bottom is the lowest value that instructions may use. They do not look below a mark.
func (m *machine) bottom() int {
	if n := len(m.marks); n > 0 {
		return m.marks[n-1]
	}
	return 0
}

func (m *machine) top() any {
	if len(m.stack) <= m.bottom() {
		panic(errMissing)
	}
	return m.stack[len(m.stack)-1]
}

func (m *machine) pop() any {
	v := m.top()
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// cut removes the values above the last mark.
func (m *machine) cut() []any {
	if len(m.marks) == 0 {
		panic(bad("it uses a mark that is not there"))
	}
	from := m.bottom()
	m.marks = m.marks[:len(m.marks)-1]
	above := m.stack[from:]
	m.stack = m.stack[:from]
	return above
}

// store notes the value on the top of the stack under a number. Pickles number these values from 0.
func (m *machine) store(i int) {
	if i > MaxValues {
		panic(failure{ErrLarge})
	}
	for len(m.memo) <= i {
		m.memo = append(m.memo, nil)
	}
	m.memo[i] = m.top()
}

func (m *machine) remember(i int) any {
	if i >= len(m.memo) {
		panic(bad("it uses a value that it has not stored"))
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

// size reads a length of width bytes.
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
	n := bytes.IndexByte(m.text[m.at:], '\n')
	if n < 0 {
		panic(errCut)
	}
	return string(m.take(n + 1)[:n])
}

// long reads a little-endian number in two's complement. It returns -1 for a number too large to
// occur in a file.
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
