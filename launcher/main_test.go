package launcher_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// patience bounds every wait for a process in these tests.
const patience = time.Minute

// screen is a writer that keeps its text, and wakes tests that wait for a part of it. Unlike a
// terminal, it is no file.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newScreen() *screen { return &screen{more: make(chan struct{})} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the text contains part.
func (s *screen) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(patience)
	for {
		s.mu.Lock()
		found, more := strings.Contains(s.text.String(), part), s.more
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Errorf("no %q in:\n%s", part, s)
			return
		}
	}
}

// marked returns a job of n ranks that run a shell script on node n1, and the screens for its
// output. The test fails if a process of the job is left at its end.
func marked(t *testing.T, n int, script string) (launcher.Job, *screen, *screen) {
	t.Helper()
	mark := fmt.Sprintf("GOLAUNCH_TEST_MARK=%d-%s", os.Getpid(), t.Name())
	t.Cleanup(func() {
		if left := withVariable(t, mark); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
	})
	out, err := newScreen(), newScreen()
	return launcher.Job{
		Command: []string{"sh", "-c", script}, Resources: launcher.Resources{PerNode: []int{n}}, Network: launcher.Network{Name: "n1"},
		Env: []string{mark}, Output: launcher.Output{LogDir: t.TempDir(), Stdout: out, Stderr: err},
	}, out, err
}

// withVariable lists the processes with a variable in their environment.
func withVariable(t *testing.T, variable string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		// A process may have ended since.
		if env, err := os.ReadFile(file); err == nil && slices.Contains(strings.Split(string(env), "\x00"), variable) {
			found = append(found, file)
		}
	}
	return found
}
