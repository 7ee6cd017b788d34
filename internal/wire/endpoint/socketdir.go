package endpoint

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// SocketDir creates a directory that only this user may enter, for a socket with a name of at most
// 16 bytes. The whole path may have 108 bytes (unix(7)). SocketDir first prunes directories with
// the same prefix.
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

// ControllerPrefix begins the names of the directories of controllers' sockets;
// python/golaunch/cluster.py has the same prefix.
const ControllerPrefix = "golaunch-controller-"

// minAge is the age from which a directory must have its socket.
const minAge = time.Minute

// Prune removes those directories of SocketDir with a prefix whose socket has no listener any more.
// It leaves directories that it cannot remove.
func Prune(prefix string) {
	dirs, err := filepath.Glob(filepath.Join(tempDir(), prefix+"*"))
	if err != nil {
		return // the pattern is valid
	}
	for _, dir := range dirs {
		if abandoned(dir) {
			_ = os.RemoveAll(dir) // the next call tries again
		}
	}
}

// RanksPrefix begins the names of the directories of sockets on which ranks talk to their agent.
const RanksPrefix = "golaunch-ranks-"

// abandoned reports whether a directory is this user's, no other user could have changed it, and
// its socket is dead.
func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&^0o011 != 0o700 || time.Since(info.ModTime()) < minAge {
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
			conn, err := net.DialTimeout("unix", filepath.Join(dir, f.Name()), minAge)
			if err == nil {
				_ = conn.Close() // a listener has answered
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}
	}
	return false
}
