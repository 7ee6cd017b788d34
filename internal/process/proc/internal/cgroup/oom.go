package cgroup

import (
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

// OOMCounter counts the processes of a memory cgroup that the kernel killed for want of memory. It
// does not know which processes they were.
type OOMCounter struct {
	file string
	mu   sync.Mutex
	seen uint64
}

// NewOOMCounter counts from now on. It reads memory.events of the nearest cgroup with the memory
// controller at or above dir (this process's own if that is empty), or memory.oom_control of cgroup
// v1, or nothing.
func NewOOMCounter(dir string) *OOMCounter {
	c := &OOMCounter{file: oomFile(dir)}
	c.seen = c.Kills()
	return c
}

func oomFile(dir string) string {
	if m, ok := FindMount(""); ok {
		if dir == "" {
			dir = m.Own
		}
		for strings.HasPrefix(dir, m.Point) {
			file := path.Join(dir, "memory.events")
			if _, err := os.Stat(file); err == nil {
				return file
			}
			dir = path.Dir(dir)
		}
	}
	if m, ok := FindMount("memory"); ok {
		return path.Join(m.Own, "memory.oom_control")
	}
	return ""
}

// Kills returns the count: both kinds of file have a line "oom_kill N". The kernel counts before it
// kills.
func (c *OOMCounter) Kills() uint64 {
	text, err := procfs.ReadFile(c.file)
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

// Claim reports whether there is an OOM kill that no other call has claimed.
func (c *OOMCounter) Claim() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Kills() <= c.seen {
		return false
	}
	c.seen++
	return true
}
