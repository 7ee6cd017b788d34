package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomCounter counts the processes that the kernel killed for want of memory. It knows the memory cgroup, not the process: a
// kill of ours can be told from the kernel's, and somebody else's kill -9 in a scope without an OOM kill too.
type oomCounter struct {
	file string
	mu   sync.Mutex
	seen uint64
}

// newOOMCounter counts from now on: in memory.events of the nearest cgroup at or above dir (or above this process's own when
// dir is empty) that has the memory controller, else in memory.oom_control of cgroup v1, else nowhere.
func newOOMCounter(dir string) *oomCounter {
	c := &oomCounter{file: oomFile(dir)}
	c.seen = c.read()
	return c
}

func oomFile(dir string) string {
	if m, ok := findMount(""); ok {
		if dir == "" {
			dir = m.own
		}
		for strings.HasPrefix(dir, m.point) {
			file := filepath.Join(dir, "memory.events")
			if _, err := os.Stat(file); err == nil {
				return file
			}
			dir = filepath.Dir(dir)
		}
	}
	if m, ok := findMount("memory"); ok {
		return filepath.Join(m.own, "memory.oom_control")
	}
	return ""
}

// read returns the count; both kinds of file have a line "oom_kill N".
func (c *oomCounter) read() uint64 {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			return n
		}
	}
	return 0
}

// claim attributes one OOM kill that no other process has claimed to the caller, if there is one. The kernel counts before it
// kills.
func (c *oomCounter) claim() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read() <= c.seen {
		return false
	}
	c.seen++
	return true
}
