package console

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/fold"
)

var Patient = patient

const Patience = patience

func CountLines(text []byte) int64 { return countLines(text) }

// OpenTerminal returns the end for programs, and a function that waits until the terminal shows
// lines.
func OpenTerminal(t *testing.T, height uint16) (Terminal, func(want ...string)) {
	s := openTerminal(t, height)
	return s.end, s.shows
}

type Terminal = interface{ Write([]byte) (int, error) }

type Writer = writer

// Held returns the number of a viewer's unfinished lines and the number of their bytes.
func (v *Viewer) Held() (lines, bytes int) { return len(v.unfinished), v.held }

// FoldWithin changes how long lines wait for lines of other ranks.
func (c *Console) FoldWithin(d time.Duration) { c.folding.folder = fold.New(d, nil) }

// Fill fills all buffers of stdout.
func (c *Console) Fill() {
	for range buffers {
		c.out.put(append(c.out.take(nil), "full\n"...))
	}
}
