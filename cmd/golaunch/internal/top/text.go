package top

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// maxText bounds the bytes that are read of a text from outside. No screen is as wide.
const maxText = 4 << 10

// escapes are the control sequences of terminals (ECMA-48): CSI, the strings OSC, DCS, SOS, PM and
// APC, and all others that begin with ESC.
var escapes = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)`)

// clean makes a text from outside safe for a screen: it removes control sequences, and all
// characters except those on whose width all terminals agree.
func clean(s string) string {
	if plain(s) {
		return s
	}
	if len(s) > maxText {
		s = s[:maxText]
	}
	s = strings.ToValidUTF8(escapes.Get().ReplaceAllString(s, ""), "\uFFFD")
	s = visible(s)
	if !plain(s) && lipgloss.Width(" "+s+" ") != width(s)+2 { // some terminals join these characters with each other, or with the characters before them
		s = strings.Map(asciiOnly, s)
	}
	return s
}

// plain reports whether a text is printable ASCII, as most are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= maxText
}

func visible(s string) string {
	var b strings.Builder
	marks := 3 // a mark may not come first
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			r, marks = ' ', 3
		case unicode.Is(unicode.Mn, r) && combines(r) && marks < 2:
			marks++
		case !unicode.IsPrint(r) || unicode.Is(unicode.M, r) || runeWidth(r) == 0:
			continue
		default:
			marks = 0
		}
		b.WriteRune(r)
	}
	return b.String()
}

// combines are the marks of Latin, Greek, Cyrillic, Hebrew, Arabic and Thai, which take no room
// anywhere.
func combines(r rune) bool { return r < 0x0700 || r >= 0x0e00 && r < 0x0e80 }

func asciiOnly(r rune) rune {
	if r > '~' {
		return '?'
	}
	return r
}

// runeWidth returns the number of columns of a character: 0, 1 or 2.
func runeWidth(r rune) int {
	switch {
	case r < 0x7f:
		return 1
	case r >= 0x2500 && r < 0x25a0 || r == '…': // lines and blocks
		return 1
	}
	return lipgloss.Width(string(r))
}

// width returns the number of columns of a cleaned text.
func width(s string) int {
	if plain(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cut shortens a cleaned text to n columns, with an ellipsis.
func cut(s string, n int, ellipsis string) string {
	if n <= 0 {
		return ""
	}
	if width(s) <= n {
		return s
	}
	room := n - width(ellipsis)
	used := 0
	for i, r := range s {
		if used += runeWidth(r); used > room {
			return s[:i] + ellipsis
		}
	}
	return s
}

// cutMiddle shortens a name to n columns in its middle, because names of nodes differ at their
// ends.
func cutMiddle(s string, n int, ellipsis string) string {
	if width(s) <= n || n < 5 {
		return s
	}
	tail := (n - width(ellipsis)) / 2
	r := []rune(s)
	for i := range r {
		if end := string(r[i:]); width(end) <= tail {
			return cut(s, n-width(end)-width(ellipsis), "") + ellipsis + end
		}
	}
	return s
}

// fit pads or shortens a cleaned text to n columns.
func fit(s string, n int, right bool, ellipsis string) string {
	s = cut(s, n, ellipsis)
	space := strings.Repeat(" ", max(0, n-width(s)))
	if right {
		return space + s
	}
	return s + space
}

// wrap breaks a cleaned text into lines of n columns, and cuts off the rest.
func wrap(s string, n, lines int, ellipsis string) (all []string) {
	for lines > 1 && width(s) > n {
		line := cut(s, n+1, "")
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			line = line[:i]
		} else {
			line = cut(s, n, "")
		}
		if line == "" {
			break
		}
		all = append(all, line)
		s, lines = strings.TrimPrefix(s[len(line):], " "), lines-1
	}
	return append(all, cut(s, n, ellipsis))
}

// lastPart returns the text that a line shows after its carriage returns, as with a progress bar.
func lastPart(line string) string {
	line = strings.TrimRight(line, "\r")
	return line[strings.LastIndexByte(line, '\r')+1:]
}

// shorten drops the last character of a text.
func shorten(s string) string {
	_, n := utf8.DecodeLastRuneInString(s)
	return s[:len(s)-n]
}
