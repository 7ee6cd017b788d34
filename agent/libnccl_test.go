package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/topotest"
)

// mapping is the script of a rank that maps a libnccl as if it had loaded the library, reports
// that, and waits for a signal to continue.
const mapping = `exec python3 -c '
import mmap, os
rank = os.environ["RANK"]
name = os.path.abspath("libnccl.so.2.20." + (rank if os.path.exists("mixed") else "0"))
file = os.open(name, os.O_RDWR | os.O_CREAT)
os.truncate(file, 4096)
loaded = mmap.mmap(file, 4096)
open("loaded" + rank, "w").close()
open("go" + rank).close()'`

// pass opens a named pipe, and waits until the other side opens it too.
func pass(t *testing.T, name string, flag int) {
	t.Helper()
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(name, flag, 0)
		if err == nil {
			err = f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatalf("no process opened %s", name)
	}
}

func TestRanksWithDifferentNCCLs(t *testing.T) {
	for _, mixed := range []bool{true, false} {
		w := obeyingOn(t, node(topotest.Machine{Nodes: 1, CoresPerNode: 1, Threads: 1, NodesPerSocket: 1, GPUs: []int{0, 0}}), mapping)
		dir := w.jobs["test"].work.Task.Dir
		for _, name := range []string{"loaded0", "loaded1", "go0", "go1"} {
			if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if mixed {
			if err := os.WriteFile(filepath.Join(dir, "mixed"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		warned, loaded := make(chan error, 1), make(chan time.Time)
		w.Warn, w.hooks.ncclLoaded = func(err error) { warned <- err }, loaded
		w.order(withGPUs(0, 0, 1))
		for _, name := range []string{"loaded0", "loaded1"} {
			pass(t, filepath.Join(dir, name), os.O_RDONLY)
		}
		loaded <- time.Now()
		text := ""
		if mixed {
			text = (<-warned).Error()
		}
		for _, name := range []string{"go0", "go1"} {
			pass(t, filepath.Join(dir, name), os.O_WRONLY)
		}
		w.quiet()
		select {
		case err := <-warned:
			t.Error(err)
		default:
		}
		if mixed && (!strings.Contains(text, "libnccl.so.2.20.0 (ranks 0), ") || !strings.Contains(text, "libnccl.so.2.20.1 (ranks 1);")) {
			t.Error(text)
		}
	}
}
