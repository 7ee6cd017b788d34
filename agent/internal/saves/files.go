package saves

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/checkpoint"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

// maxFiles bounds how many open files of a process the watch examines.
const maxFiles = 1 << 14

// written returns the files that a process has open for writing.
func written(pid int) (files []string) {
	proc := "/proc/" + strconv.Itoa(pid)
	d, err := os.Open(proc + "/fd")
	if err != nil {
		return nil // the process has ended, or belongs to another user
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxFiles)
	for _, name := range names {
		file, err := os.Readlink(proc + "/fd/" + name)
		if err != nil || !strings.HasPrefix(file, "/") || strings.HasPrefix(file, "/dev/") || strings.HasSuffix(file, " (deleted)") {
			continue
		}
		text, err := os.ReadFile(proc + "/fdinfo/" + name)
		if err != nil {
			continue
		}
		if flags, err := strconv.ParseUint(procfs.Field(string(text), "flags"), 8, 64); err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY {
			files = append(files, file)
		}
	}
	return files
}

// locate returns the checkpoint that a file belongs to. In a directory that the user has named,
// each file belongs to a checkpoint.
func (w *Watch) locate(file string) (dir, name string, ok bool) {
	dir, name, ok = checkpoint.Locate(file)
	if w.Dir == "" {
		return dir, name, ok
	}
	below, inside := strings.CutPrefix(file, path.Clean(w.Dir)+"/")
	switch {
	case !inside, checkpoint.OfGroup(file):
		return "", "", false
	case ok && len(path.Join(dir, name)) > len(path.Clean(w.Dir)):
		return dir, name, true
	}
	name, _, _ = strings.Cut(below, "/")
	return path.Clean(w.Dir), checkpoint.FinalName(name), true
}

// realPath returns a path without links. The end of the path need not exist yet.
func realPath(dir string) string {
	for at, rest := path.Clean(dir), ""; ; at, rest = path.Dir(at), path.Join(path.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return path.Join(real, rest)
		}
		if at == path.Dir(at) {
			return path.Clean(dir)
		}
	}
}

// dirFS opens files below a directory.
func dirFS(dir string) fs.FS { return os.DirFS(dir) }

// shared are the kinds of file systems, as in statfs(2), that several nodes may see.
var shared = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.CEPH_SUPER_MAGIC: true,
	unix.FUSE_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.AFS_SUPER_MAGIC: true, unix.OCFS2_SUPER_MAGIC: true,
	0x0BD00BD0: true, // Lustre
	0x47504653: true, // GPFS
	0x19830326: true, // BeeGFS
	0x20030528: true, // OrangeFS
}

// isShared reports whether other nodes see the same files in a directory.
func isShared(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && shared[int64(st.Type)] //nolint:unconvert // it is 32 bits wide elsewhere
}

// syncFS writes the file system of a directory to its disks. Few programs sync their files, and no
// program syncs the directory.
func syncFS(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("syncfs of %s: %w", dir, err)
	}
	return nil
}

// answer is the disk's answer to a question.
type answer struct {
	dir, name string
	// looked says that the answer is about the directory. at is when the directory changed, and
	// name is its newest checkpoint.
	looked bool
	at     time.Time
	// shared says that all nodes see the files; the first nodes of the job then prove the
	// checkpoint. asked says that the question was only whether they see them.
	shared, asked bool
	finding       checkpoint.Finding
	// real is the user's directory without links, if the question was about that.
	real string
}

// newest looks for the newest checkpoint in a directory that has changed, unless the first nodes of
// the job look there.
func (w *Watch) newest(p place) func() answer {
	distant := w.NodeRank >= provers
	return func() answer {
		a := answer{dir: p.dir, name: p.last, looked: true, at: p.changed}
		if distant && isShared(p.dir) {
			return a
		}
		info, err := os.Stat(p.dir)
		if err != nil || info.ModTime().Equal(p.changed) {
			return a
		}
		if name, err := checkpoint.Newest(dirFS(p.dir)); err == nil {
			a.name, a.at = name, info.ModTime()
		}
		return a
	}
}

// disk does one operation at a time with the user's files. A file server that does not answer then
// blocks only the disk, not the watch.
type disk struct {
	rights *safefile.Rights
	// pending says that an answer is missing, and since is when the question was asked. found
	// delivers the answer.
	pending bool
	since   time.Time
	found   chan answer
	// asked counts the questions. While no checkpoint is in flight, each question is one stat of a
	// directory.
	asked int
}

// ask sends a question to the disk, unless the disk is busy. The answer comes later.
func (d *disk) ask(question func() answer) {
	if !d.pending {
		d.pending, d.since = true, time.Now()
		d.asked++
		go func() {
			var a answer
			if d.rights.Do(func() error { a = question(); return nil }) != nil {
				a = answer{} // the rights of the user are not available
			}
			d.found <- a
		}()
	}
}

// take receives an answer, or returns false when limit fires.
func (d *disk) take(limit <-chan time.Time) (answer, bool) {
	select {
	case a := <-d.found:
		d.pending = false
		return a, true
	case <-limit:
		return answer{}, false
	}
}
