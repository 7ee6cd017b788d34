package console

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible makes a text from elsewhere, such as a file name, safe to show in one line of a terminal.
// It drops colours.
func Visible(text string) string {
	return string(AppendVisible(nil, []byte(strings.ReplaceAll(text, "\n", "\v")), false))
}

// AppendVisible appends a line as a terminal may show it: valid UTF-8 in which control characters
// except tabs are written as ^X, so that a rank cannot move the cursor, set the title or make the
// terminal answer. Only the last text of a line that overwrites itself with carriage returns
// remains. With colour, colours (SGR) pass and end with the line; otherwise they are dropped.
func AppendVisible(b, line []byte, colour bool) []byte {
	line = bytes.TrimRight(line, "\r")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	coloured := false
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case r == '\x1b' && sgrLen(line) > 0:
			n = sgrLen(line)
			if coloured = coloured || colour; colour {
				b = append(b, line[:n]...)
			}
		case r != '\t' && r < ' ' || r == 0x7f:
			b = append(b, '^', byte(r)^0x40)
		case unicode.IsControl(r) && r != '\t', changesDirection(r):
			b = utf8.AppendRune(b, utf8.RuneError)
		default:
			b = utf8.AppendRune(b, r)
		}
		line = line[n:]
	}
	if coloured {
		b = append(b, "\x1b[0m"...)
	}
	return b
}

// changesDirection reports whether r changes or isolates the direction of the text after it. Such a
// character can make one line look like another.
func changesDirection(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// sgrLen is the length of the Select Graphic Rendition sequence at the start of b (ECMA-48: ESC [
// numbers m), or 0.
func sgrLen(b []byte) int {
	const longest = 64
	if len(b) < 2 || b[1] != '[' {
		return 0
	}
	for i, c := range b[2:min(len(b), longest)] {
		if c == 'm' {
			return i + 3
		}
		if (c < '0' || c > '9') && c != ';' && c != ':' {
			return 0
		}
	}
	return 0
}
