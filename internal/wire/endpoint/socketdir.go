package endpoint

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// SocketDir makes a directory, which this user alone may enter, for a socket with a name of 16 bytes at most: its path has 108 (unix(7)). Those with
// the same prefix go that are left of this user's processes that were killed.
func SocketDir(prefix string) (string, error) {
	Prune(prefix)
	return os.MkdirTemp(tempDir(), prefix)
}

func tempDir() string {
	if dir := os.TempDir(); len(dir) <= 70 {
		return dir
	}
	return "/tmp"
}

// ControllerPrefix begins the names of the directories of controllers' own sockets; python/golaunch/cluster.py has it too.
const ControllerPrefix = "golaunch-controller-"

// settled is the age from which a directory has its socket.
const settled = time.Minute

// Prune removes the directories with a prefix, as SocketDir makes them, at whose socket nobody listens any more. What cannot be removed stays.
func Prune(prefix string) {
	dirs, err := filepath.Glob(filepath.Join(tempDir(), prefix+"*"))
	if err != nil {
		return // no such pattern is bad
	}
	for _, dir := range dirs {
		if abandoned(dir) {
			_ = os.RemoveAll(dir) // the next one may
		}
	}
}

// abandoned says that a directory is this user's own, that nobody else could have changed it, and that the socket in it is dead.
func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) < settled {
		return false
	}
	if at, ok := info.Sys().(*syscall.Stat_t); !ok || int(at.Uid) != os.Geteuid() {
		return false
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		if f.Type()&os.ModeSocket != 0 {
			conn, err := net.DialTimeout("unix", filepath.Join(dir, f.Name()), settled)
			if err == nil {
				_ = conn.Close() // it was only looked whether somebody listens
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}
	}
	return false
}
