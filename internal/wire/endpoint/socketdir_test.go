package endpoint_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

// TestSocketDirs checks that the next process removes what a killed process has left, and nothing
// else.
func TestSocketDirs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	make := func(prefix string, listens, socket, old bool) string {
		t.Helper()
		dir, err := endpoint.SocketDir(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if socket {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			if listens {
				t.Cleanup(func() { l.Close() })
			} else {
				l.Close()
			}
		}
		if old {
			hour := time.Now().Add(-time.Hour)
			if err := os.Chtimes(dir, hour, hour); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	dead := make("golaunch-a-", false, true, true)
	kept := []string{
		make("golaunch-a-", true, true, true), make("golaunch-a-", false, true, false), make("golaunch-a-", false, false, true),
		make("golaunch-b-", false, true, true),
	}
	passable := make("golaunch-a-", false, true, true) // as root's agent has for another user
	if err := os.Chmod(passable, 0o711); err != nil {
		t.Fatal(err)
	}
	shared := make("golaunch-a-", false, true, true)
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	endpoint.Prune("golaunch-a-")
	for _, dir := range []string{dead, passable} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a socket without a listener is left: %v", err)
		}
	}
	for i, dir := range append(kept, shared) {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("directory %d is gone: %v", i, err)
		}
	}
}
