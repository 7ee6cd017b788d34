package fold

import (
	"bytes"
	"hash/maphash"
)

const (
	// maxHead is the number of bytes of a line that are scanned. The rest must be the same in all
	// lines of a group.
	maxHead = 2 << 10
	// maxSlots is the number of values of a line that are distinguished from its words; a mask of
	// values is a uint64.
	maxSlots = 64
	// mark begins a value in a shape. It does not occur in UTF-8. Where the line itself has this
	// byte, a zero follows.
	mark = 0xff
)

// span is a value in a line: text[begin:end]. text[pad:begin] is spaces that align it.
type span struct{ pad, begin, end uint16 }

// slot has the kind and the unit of the value at a place of a shape. unit is time, bytes or a
// count; 0 without a unit.
type slot struct {
	kind Kind
	unit byte
}

// scanner splits lines into words and values. Its fields hold until the next line.
type scanner struct {
	// text is the head of the line without colours, and shape its words with marks for the values.
	text, shape []byte
	slots       []slot
	spans       []span
	// words says that the line has letters outside its values.
	words bool
	// rest is the number of bytes of the line after its head.
	rest  int
	plain []byte
	// done is the length of the part of text that is in shape.
	done int
	seed maphash.Seed
}

// line scans a line, or only its last text if the line overwrites itself with carriage returns.
func (s *scanner) line(raw []byte) {
	for len(raw) > 0 && (raw[len(raw)-1] == '\n' || raw[len(raw)-1] == '\r') {
		raw = raw[:len(raw)-1]
	}
	raw = raw[bytes.LastIndexByte(raw, '\r')+1:]
	if bytes.IndexByte(raw, '\x1b') >= 0 {
		s.plain = appendPlain(s.plain[:0], raw)
		raw = s.plain
	}
	s.text = raw[:min(len(raw), maxHead)]
	s.shape, s.slots, s.spans, s.words, s.done = s.shape[:0], s.slots[:0], s.spans[:0], false, 0
	s.scan()
	s.literal(len(s.text))
	s.rest = len(raw) - len(s.text)
	if s.rest > 0 {
		s.shape = append(s.shape, mark, mark)
		s.shape = appendUint64(appendUint64(s.shape, uint64(s.rest)), maphash.Bytes(s.seed, raw[len(s.text):]))
	}
	if cap(s.plain) > 16*maxHead {
		s.plain = nil
	}
}

func appendUint64(b []byte, v uint64) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
}

const (
	other = iota
	digit
	letter
)

var classes = func() (c [256]byte) {
	for i := range 10 {
		c['0'+i] = digit
	}
	for i := range 26 {
		c['a'+i], c['A'+i] = letter, letter
	}
	return c
}()

// class returns the class of the byte at a place of the text, and the class other outside of the
// text.
func (s *scanner) class(at int) byte {
	if uint(at) >= uint(len(s.text)) {
		return other
	}
	return classes[s.text[at]]
}

// is reports whether the byte at a place of the text is c.
func (s *scanner) is(at int, c byte) bool { return uint(at) < uint(len(s.text)) && s.text[at] == c }

func (s *scanner) scan() {
	for i := 0; i < len(s.text) && len(s.slots) < maxSlots; {
		switch c := s.text[i]; classes[c] {
		case letter:
			i = s.word(i)
		case digit:
			i = s.number(i)
		default:
			if i++; c == '%' && s.is(i, '|') {
				i = s.bar(i + 1)
			} else if c >= 0x80 {
				s.words = true
			}
		}
	}
}

// literal adds the text up to a place to the shape as words.
func (s *scanner) literal(to int) {
	part := s.text[s.done:to]
	s.done = to
	for {
		at := bytes.IndexByte(part, mark)
		if at < 0 {
			s.shape = append(s.shape, part...)
			return
		}
		s.shape = append(append(s.shape, part[:at+1]...), 0)
		part = part[at+1:]
	}
}

// value adds text[begin:end] as a value. The spaces before it, except the first, align the value,
// unless they indent the line.
func (s *scanner) value(kind Kind, unit byte, begin, end int) int {
	pad := begin
	for pad-1 > s.done && s.text[pad-1] == ' ' && s.text[pad-2] == ' ' {
		pad--
	}
	if pad == 1 {
		pad = begin
	}
	s.literal(pad)
	s.shape = append(s.shape, mark, byte(kind), unit)
	s.slots = append(s.slots, slot{kind, unit})
	s.spans = append(s.spans, span{uint16(pad), uint16(begin), uint16(end)})
	s.done = end
	return end
}

// bar returns the end of the filling of a progress bar that begins here.
func (s *scanner) bar(from int) int {
	const longest = 400
	for i := from; i < min(len(s.text), from+longest); i++ {
		if s.text[i] == '|' {
			s.literal(from)
			return s.value(Bar, 0, from, i)
		}
	}
	return from
}

// word skips to the first value of the word that begins here, or to its end.
func (s *scanner) word(from int) int {
	i := from
	for i < len(s.text) && classes[s.text[i]] == letter {
		i++
	}
	if (s.class(i) == digit || i-from == 8 && s.is(i, '-')) && s.name(s.run(from)) {
		return s.done
	}
	s.words = true
	return i
}

// name adds a run as a value if it looks generated: a hash, an id, or the name of a temporary file.
func (s *scanner) name(r run) bool {
	switch {
	case r.end-r.begin == 8 && r.hex && s.uuid(r.begin):
		s.value(Name, 0, r.begin, r.begin+uuidLen)
	case r.end-r.begin >= 6 && r.turns >= 3, r.end-r.begin >= 8 && r.hex && r.turns > 0:
		s.value(Name, 0, r.begin, r.end)
	default:
		return false
	}
	return true
}

// run is a run of digits and letters. hex says that all are hexadecimal digits. turns counts the
// changes between digits and letters.
type run struct {
	begin, end, digits, turns int
	hex                       bool
}

func (s *scanner) run(from int) run {
	r := run{begin: from, end: from, hex: true}
	for was := s.class(from); ; r.end++ {
		c := s.class(r.end)
		if c == other {
			return r
		}
		if c == digit {
			r.digits++
		} else if !isHex(s.text[r.end]) {
			r.hex = false
		}
		if c != was {
			r.turns++
		}
		was = c
	}
}

func isHex(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'f' || classes[c] == digit }

const uuidLen = 36

// uuid reports whether a UUID begins here: 8-4-4-4-12 hexadecimal digits.
func (s *scanner) uuid(from int) bool {
	if len(s.text) < from+uuidLen || s.class(from+uuidLen) != other {
		return false
	}
	for i, c := range s.text[from : from+uuidLen] {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !isHex(c) {
			return false
		}
	}
	return true
}

// appendPlain appends a line without its escape sequences (ECMA-48).
func appendPlain(b, line []byte) []byte {
	for {
		at := bytes.IndexByte(line, '\x1b')
		if at < 0 {
			return append(b, line...)
		}
		b = append(b, line[:at]...)
		line = line[at+escape(line[at:]):]
	}
}

// escape returns the length of the escape sequence at the start of b. For an unfinished sequence it
// returns 1, the length of the escape character.
func escape(b []byte) int {
	const longest = 128
	if len(b) > 1 && bytes.IndexByte([]byte("]PX^_"), b[1]) >= 0 {
		return controlString(b)
	}
	if len(b) < 2 || b[1] != '[' {
		return 1
	}
	for i, c := range b[2:min(len(b), longest)] {
		if c >= 0x40 && c <= 0x7e {
			return i + 3
		}
		if c < 0x20 || c > 0x3f {
			break
		}
	}
	return 1
}

// controlString does what escape does, for a sequence whose text ends with BEL or ST, such as a
// window title.
func controlString(b []byte) int {
	const longest = 1000
	for i, c := range b[2:min(len(b), longest+3)] {
		switch {
		case c == '\a':
			return i + 3
		case c == '\x1b' && i+3 < len(b) && b[i+3] == '\\':
			return i + 4
		case c == '\x1b':
			return 1
		}
	}
	return 1
}
