package web

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/process/console"
)

// Bounds of texts, in characters. Names given by programs and users may be long, and a page shows
// many.
const (
	maxName   = 256
	maxTitle  = 1000
	maxReason = 4000
	maxTail   = 64 << 10
	maxLine   = 4 << 10
)

// text makes one valid line of a text from outside, without colours, control characters and
// direction marks.
func text(s string, most int) string {
	s = strings.Map(upright, console.Visible(clip(s, 4*most)))
	if visible := []rune(s); len(visible) > most {
		return string(visible[:most-1]) + "…"
	}
	return s
}

// upright replaces characters that change the direction of text, with which one name can look like
// another.
func upright(r rune) rune {
	if unicode.Is(unicode.Bidi_Control, r) {
		return utf8.RuneError
	}
	return r
}

// paragraph returns a text of several lines, cut to a number of bytes.
func paragraph(s string, most int) string {
	var b strings.Builder
	for line := range strings.Lines(clip(s, most)) {
		b.WriteString(text(strings.TrimSuffix(line, "\n"), maxLine))
		b.WriteByte('\n')
	}
	return b.String()
}

// clip is the beginning of a text.
func clip(s string, bytes int) string { return s[:min(len(s), bytes)] }
