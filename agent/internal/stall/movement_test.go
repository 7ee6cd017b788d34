package stall

import (
	"testing"
	"time"
)

func TestWhatMoves(t *testing.T) {
	const look = 10 * time.Second
	spin := usage{cpu: look, faults: 19}
	for _, c := range []struct {
		name     string
		usage    usage
		cpu, gpu bool
	}{
		{"nothing", usage{bytes: 4000, faults: 1000, cpu: look / 100}, false, false},
		{"a line of output", usage{written: 1}, true, true},
		{"a checkpoint", usage{bytes: 1 << 20}, true, true},
		{"a wait that spins", spin, true, false},
		{"a program that computes", usage{cpu: look, faults: 200}, true, true},
		{"after a child has ended", usage{cpu: -look, faults: -100, bytes: -5}, false, false},
	} {
		if got := c.usage.moves(look, false); got != c.cpu {
			t.Errorf("%s moves a CPU rank: %v", c.name, got)
		}
		if got := c.usage.moves(look, true); got != c.gpu {
			t.Errorf("%s moves a rank with a GPU: %v", c.name, got)
		}
	}
}
