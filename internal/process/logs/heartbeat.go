package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// heartbeatsBase is a directory in memory, so that a rank's heartbeat waits for no disk, and a full
// disk does not end the rank.
var heartbeatsBase = "/dev/shm"

// openHeartbeats opens the directory for the heartbeats of a user's ranks on this machine. It
// returns nil if it cannot.
func openHeartbeats(of *safefile.Rights) *safefile.Root {
	uid := os.Getuid()
	if of != nil {
		uid = int(of.UID)
	}
	dir := filepath.Join(heartbeatsBase, fmt.Sprintf("golaunch-%d", uid))
	err := of.Do(func() error {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return safefile.Path(dir)
	})
	if err != nil {
		return nil
	}
	root, err := safefile.OpenRoot(dir, of)
	if err != nil {
		return nil
	}
	if root.Own() != nil {
		_ = root.Close()
		return nil
	}
	return root
}

// openHeartbeats puts the heartbeats into memory if it can. Their names begin with the device and
// inode of the log directory, which are unique on this machine.
func (d *Dir) openHeartbeats() error {
	info, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	d.beats, d.beatName = openHeartbeats(d.access.Job), fmt.Sprintf("%x-%x", st.Dev, st.Ino)
	return nil
}

// heartbeat is the rank's heartbeat file: in memory, else among its logs, or nil without log files.
func (r *Rank) heartbeat() (in *safefile.Root, name string) {
	if r.dir.beats != nil {
		return r.dir.beats, fmt.Sprintf("%s-%d-%d.heartbeat", r.dir.beatName, r.opts.Attempt, r.opts.Rank)
	}
	return r.dir.root, r.file("heartbeat")
}

// HeartbeatFile is the absolute path for GOLAUNCH_HEARTBEAT_FILE, or empty. The rank makes the file
// and Close removes it.
func (r *Rank) HeartbeatFile() string {
	in, name := r.heartbeat()
	if in == nil {
		return ""
	}
	return filepath.Join(in.Name(), name)
}

// OpenHeartbeat opens the heartbeat file to read.
func (r *Rank) OpenHeartbeat() (*os.File, error) {
	in, name := r.heartbeat()
	if in == nil {
		return nil, errNoFiles
	}
	return in.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func (r *Rank) removeHeartbeat() error {
	in, name := r.heartbeat()
	if in == nil {
		return nil
	}
	if err := in.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
