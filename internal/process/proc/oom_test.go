package proc

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// memoryGroup makes a memory cgroup with a limit of 64 MiB, of version 1 or 2. That takes root, so the test is skipped without.
func memoryGroup(t *testing.T) string {
	t.Helper()
	parent, limit := "", "memory.limit_in_bytes"
	if m, ok := findMount("memory"); ok {
		parent = m.own
	} else if m, ok := findMount(""); ok {
		limit = "memory.max"
		for parent = m.own; strings.HasPrefix(parent, m.point); parent = filepath.Dir(parent) {
			text, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
			must(t, err)
			if strings.Contains(string(text), "memory") {
				break
			}
		}
	}
	dir := filepath.Join(parent, "proc-test-"+rand.Text()[:8])
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no memory cgroup can be made here: %v", err)
	}
	t.Cleanup(func() { must(t, os.Remove(dir)) })
	must(t, os.WriteFile(filepath.Join(dir, limit), []byte("64M"), 0o644))
	return dir
}

func TestOOMIsNamed(t *testing.T) {
	helperWays(t, func(t *testing.T, p plan) {
		p.Cgroup = memoryGroup(t)
		self, err := os.Executable()
		must(t, err)
		out := newOutput(t)
		p.Script = "PROC_TEST_EAT=1 exec " + self
		h := startHelper(t, p, out)
		t.Cleanup(func() { h.stderr.end() })
		line, err := h.words.ReadString('\n')
		must(t, err)
		if want := fmt.Sprintf("%+v\n", report.Exit{Code: 137, Signal: 9, OOM: true}); line != want {
			t.Errorf("exit %s, want %s", line, want)
		}
		h.kill(t)
		out.end()
	})
}

func TestOOMClaims(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	count := func(n int) {
		must(t, os.WriteFile(file, fmt.Appendf(nil, "low 0\noom 9\noom_kill %d\noom_group_kill 0\n", n), 0o644))
	}
	count(3)
	c := &oomCounter{file: file}
	c.seen = c.read()
	if c.claim() {
		t.Error("claimed what came before")
	}
	count(5)
	if !c.claim() || !c.claim() || c.claim() {
		t.Error("two kills are not two claims")
	}
}
