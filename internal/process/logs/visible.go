package logs

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible is a text of somebody else's as it may be shown in a line on a terminal, without colours: a file's name, or a line of it.
func Visible(text string) string {
	return string(appendVisible(nil, []byte(strings.ReplaceAll(text, "\n", "\v")), false))
}

// appendVisible appends a line of text as it may be shown on a terminal: valid UTF-8 in which control characters but tabs are
// written ^X, so that a rank cannot move the cursor, set the title or make the terminal answer. Of a line that overwrites itself
// with carriage returns the last text remains. Colours (SGR) pass, and end with the line, or are left out.
func appendVisible(b, line []byte, colour bool) []byte {
	line = bytes.TrimRight(line, "\r")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	coloured := false
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case r == '\x1b' && sgr(line) > 0:
			n = sgr(line)
			if coloured = coloured || colour; colour {
				b = append(b, line[:n]...)
			}
		case r != '\t' && r < ' ' || r == 0x7f:
			b = append(b, '^', byte(r)^0x40)
		case unicode.IsControl(r) && r != '\t', turns(r):
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

// turns says that a character has the text after it run in another direction, or be isolated, so that a line looks like another one.
func turns(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// sgr is the length of the Select Graphic Rendition sequence that b starts with (ECMA-48: ESC [ numbers m), or 0.
func sgr(b []byte) int {
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
