package stacks

// line is the one of an instruction; 0 where it is not known.
func (co *code) line(instruction uint64, minor int) int {
	switch {
	case minor >= 11:
		at := instruction - co.instructions
		if at >= maxCode {
			return 0
		}
		return bounded(locations(co.lines, co.first, int(at)))
	case int32(instruction) < 0:
		return bounded(co.first) // it has not begun
	case minor == 10:
		return bounded(ranges(co.lines, co.first, 2*int(int32(instruction))))
	}
	return bounded(increments(co.lines, co.first, int(int32(instruction))))
}

// bounded is a line that may be one.
func bounded(line int) int {
	if line < 0 || line > 1<<30 {
		return 0
	}
	return line
}

// increments reads what Python has up to 3.9: how many bytes of instructions and how many lines it is from one entry to the next.
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

// ranges reads what 3.10 has: how many bytes have a line, and how far that is from the line before; -128 have none.
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

// The kinds of entries of a table of locations.
const (
	firstOfLine = 10 // and 11 and 12: on the same line, the next and the one after it
	noColumns   = 13
	longEntry   = 14
	noLocation  = 15
)

// locations reads what there is since 3.11. The first byte of an entry has the highest bit set, the kind, and how many instructions of two
// bytes it is for, less one; what follows are columns, but for a number of lines in two kinds.
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

// signed is a number in groups of 6 bits, the lowest first, of which the seventh says that another one follows. Its lowest bit is the sign.
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
