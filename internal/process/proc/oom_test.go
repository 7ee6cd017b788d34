package proc

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc/internal/cgroup"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/launcher/report"
)

// memoryGroup makes a memory cgroup with a limit of 64 MiB, of version 1 or 2. The cgroup needs
// root; without root, the test is skipped.
func memoryGroup(t *testing.T) string {
	t.Helper()
	parent, limit := "", "memory.limit_in_bytes"
	if m, ok := cgroup.FindMount("memory"); ok {
		parent = m.Own
	} else if m, ok := cgroup.FindMount(""); ok {
		limit = "memory.max"
		for parent = m.Own; strings.HasPrefix(parent, m.Point); parent = filepath.Dir(parent) {
			text, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
			must(t, err)
			if strings.Contains(string(text), "memory") {
				break
			}
		}
	}
	dir := filepath.Join(parent, "proc-test-"+rand.Text()[:8])
	if err := os.Mkdir(dir, 0o755); err != nil {
		suite.Missing(t, "no memory cgroup can be made here: %v", err)
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
