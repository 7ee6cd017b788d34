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

// beatsBase is memory: heartbeats wait for no disk, and one that is full of logs does not end a rank that writes them.
var beatsBase = "/dev/shm"

// openBeats opens the directory with the heartbeats of a user's ranks on this machine; nil where there can be none.
func openBeats(of *safefile.Rights) *safefile.Root {
	uid := os.Getuid()
	if of != nil {
		uid = int(of.UID)
	}
	dir := filepath.Join(beatsBase, fmt.Sprintf("golaunch-%d", uid))
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

// openBeats has heartbeats in memory, if it can, under names that no other directory on this machine has.
func (d *Dir) openBeats() error {
	info, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	d.beats, d.beatName = openBeats(d.whose.Job), fmt.Sprintf("%x-%x", st.Dev, st.Ino)
	return nil
}

// heartbeat is where the rank's is: a name in memory, which has no other on this machine, or else among its logs; nil where there are no
// files.
func (r *Rank) heartbeat() (in *safefile.Root, name string) {
	if r.dir.beats != nil {
		return r.dir.beats, fmt.Sprintf("%s-%d-%d.heartbeat", r.dir.beatName, r.opts.Attempt, r.opts.Rank)
	}
	return r.dir.root, r.file("heartbeat")
}

// HeartbeatFile is the absolute path for GOLAUNCH_HEARTBEAT_FILE, or empty. The rank makes it, if it does; it goes with Close.
func (r *Rank) HeartbeatFile() string {
	in, name := r.heartbeat()
	if in == nil {
		return ""
	}
	return filepath.Join(in.Name(), name)
}

// OpenHeartbeat opens that file to read.
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
