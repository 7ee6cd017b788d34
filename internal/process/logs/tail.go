package logs

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/golaunch/golaunch/internal/process/console"
)

const (
	tailBytes = 8 << 10
	tailLines = 40
)

// tail keeps the last bytes of a stream. Its pump writes while others read.
type tail struct {
	mu   sync.Mutex
	ring []byte
	next int
	full bool
}

func (t *tail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ring == nil {
		t.ring = make([]byte, tailBytes)
	}
	b = b[max(0, len(b)-tailBytes):]
	n := copy(t.ring[t.next:], b)
	copy(t.ring, b[n:])
	t.full = t.full || t.next+len(b) >= tailBytes
	t.next = (t.next + len(b)) % tailBytes
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.full {
		return slices.Clone(t.ring[:t.next])
	}
	return slices.Concat(t.ring[t.next:], t.ring[:t.next])
}

// text returns the last whole lines: at most tailLines lines and tailBytes of visible text.
func (t *tail) text() string {
	b := t.bytes()
	if cut := bytes.IndexByte(b, '\n'); len(b) == tailBytes && cut >= 0 && cut < len(b)-1 {
		b = b[cut+1:] // the start of this line is gone
	}
	lines := bytes.Split(bytes.TrimRight(b, "\r\n"), []byte{'\n'})
	return visibleLines(lines[max(0, len(lines)-tailLines):], tailBytes)
}

// visibleLines joins lines in their visible form ([console.AppendVisible]), and keeps the last
// limit bytes.
func visibleLines(lines [][]byte, limit int) string {
	var out []byte
	for i, line := range lines {
		if i > 0 {
			out = append(out, '\n')
		}
		out = console.AppendVisible(out, line, false)
	}
	cut := max(0, len(out)-limit)
	for cut < len(out) && !utf8.RuneStart(out[cut]) {
		cut++
	}
	return strings.TrimRight(string(out[cut:]), "\n")
}
