package stacks

// line is the line of an instruction; 0 if unknown.
func (co *code) line(instruction uint64, minor int) int {
	switch {
	case minor >= 11:
		at := instruction - co.instructions
		if at >= maxCode {
			return 0
		}
		return bounded(locations(co.lines, co.first, int(at)))
	case int32(instruction) < 0:
		return bounded(co.first) // the call has not started
	case minor == 10:
		return bounded(ranges(co.lines, co.first, 2*int(int32(instruction))))
	}
	return bounded(increments(co.lines, co.first, int(int32(instruction))))
}

// bounded returns line, or 0 if that cannot be a line number.
func bounded(line int) int {
	if line < 0 || line > 1<<30 {
		return 0
	}
	return line
}

// increments reads the line table of Python up to 3.9. An entry has the number of bytes of
// instructions, and the number of lines, from one entry to the next.
func increments(table []byte, line, at int) int {
	end := 0
	for ; len(table) >= 2; table = table[2:] {
		if end += int(table[0]); end > at {
			break
		}
		line += int(int8(table[1]))
	}
	return line
}

// ranges reads the line table of 3.10. An entry has the number of bytes of instructions with the
// same line, and the distance of this line from the line before; -128 means no line.
func ranges(table []byte, line, at int) int {
	end := 0
	for ; len(table) >= 2; table = table[2:] {
		delta := int(int8(table[1]))
		if delta != -128 {
			line += delta
		}
		if end += int(table[0]); end > at {
			if delta == -128 {
				return 0
			}
			return line
		}
	}
	return line
}

// The kinds of entries in a location table.
const (
	firstOfLine = 10 // 10, 11 and 12: the same line, the next, or the second next
	noColumns   = 13
	longEntry   = 14
	noLocation  = 15
)

// locations reads the line table since 3.11. In the first byte of an entry, the highest bit is set.
// The other bits are the kind, and one less than the number of two-byte instructions. The following
// bytes are columns; for two kinds, they begin with a number of lines.
func locations(table []byte, line, at int) int {
	end := 0
	for len(table) > 0 {
		head, kind := table[0], int(table[0]>>3&15)
		next := 1
		for next < len(table) && table[next]&0x80 == 0 {
			next++
		}
		switch {
		case kind >= firstOfLine && kind < noColumns:
			line += kind - firstOfLine
		case kind == noColumns || kind == longEntry:
			line += signed(table[1:next])
		}
		if end += 2 * (int(head&7) + 1); end > at {
			if kind == noLocation {
				return 0
			}
			return line
		}
		table = table[next:]
	}
	return 0
}

// signed reads a number in groups of 6 bits, the lowest first. The seventh bit says that another
// group follows, and the lowest bit of the number is its sign.
func signed(b []byte) int {
	n := 0
	for i, c := range b[:min(len(b), 6)] {
		n |= int(c&63) << (6 * i)
		if c&64 == 0 {
			break
		}
	}
	if n&1 == 1 {
		return -(n >> 1)
	}
	return n >> 1
}
