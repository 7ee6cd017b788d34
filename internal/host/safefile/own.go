// Package safefile tells what is this user's alone from what another has put there.
//
// Whoever can write to a directory can put a link to a third file there, or a file that he reads and writes himself. Linux refuses some of
// these in directories with the sticky bit, where fs.protected_* is set (proc_sys_fs(5)); this package refuses them whatever is set, for root
// too. The rule is the same for all that golaunch makes or opens: the path to a directory leads over no link that another user may have
// planted ([Path]), the directory is this user's and nobody else can write to it ([Dir]), and what is in it already is a plain file of this
// user's with one name ([File]). A single file that a user has named is written with [Write].
//
// Whose links may be followed goes by who can write to the directory that they are in, beside the owner of that:
//
//	nobody: everybody's, for the owner has let them be made
//	a group: those of root, of this user, and of the owner, who needs no group for that; so a home with umask 002 has its links followed
//	everybody: those of root and of this user
//
// At the end of a path only those of root and of this user are.
//
// This user is the one of the process, or one whom a process of root's works for: see [Rights].
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links a path may lead over, as in Linux (path_resolution(7)).
const maxLinks = 40

// Path refuses a path that leads over a symbolic link which another user may have planted. What is not there is fine, and so is what a
// descriptor of this process leads to.
func Path(path string) error {
	_, err := walk(path)
	return err
}

// walk is Path. It reports whether the path leads to a descriptor of this process (/dev/stderr does), which was given to it: who may have
// put there what it refers to is no question then.
func walk(path string) (given bool, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	self, _ := os.Readlink("/proc/self") // of the process in the PID namespace of /proc
	var dir fs.FileInfo
	at := "/"
	rest := strings.Split(abs, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		here := filepath.Join(at, name)
		info, err := os.Lstat(here)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, err
		case info.Mode()&fs.ModeSymlink == 0:
			at, dir = here, info
			continue
		}
		if uid := owner(info); !followed(info, dir, len(rest) == 0) {
			return false, fmt.Errorf("%s is a symbolic link of uid %d, another user", here, uid)
		}
		if self != "" && at == filepath.Join("/proc", self, "fd") && len(rest) == 0 {
			return true, nil
		}
		if links++; links > maxLinks {
			return false, fmt.Errorf("%s: %w", path, unix.ELOOP)
		}
		target, err := os.Readlink(here)
		if err != nil {
			return false, err
		}
		if filepath.IsAbs(target) {
			at, dir = "/", nil
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false, nil
}

// followed says that a link may be, which is in a directory, and perhaps the end of a path.
func followed(link, dir fs.FileInfo, last bool) bool {
	switch {
	case owner(link) == 0 || Is(link):
		return true
	case last || dir == nil || dir.Mode().Perm()&0o002 != 0:
		return false
	}
	return dir.Mode().Perm()&0o020 == 0 || owner(link) == owner(dir)
}

// Open opens a directory, and waits for nothing that is in its place, as a FIFO would have it.
func Open(dir string) (*os.Root, error) {
	return os.OpenRoot(dir + "/") // which only a directory may have behind it (path_resolution(7))
}

// Dir refuses a directory that belongs to another user, or that others can write to. Where that is a group alone, of a directory of one's
// own, it is taken from the group: a umask of 002 grants it, and so does Kubernetes to the fsGroup of a pod, each time that it mounts a
// volume. What was put there before is for [File] to refuse. On file systems of other machines, which may map users and modes as they like,
// root's own may belong to anybody, and modes mean nothing.
func Dir(dir *os.Root) error {
	name := filepath.Clean(dir.Name())
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := mine(info, name, remote(f)); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 == 0 || remote(f) {
		return nil
	}
	if info.Mode().Perm()&0o002 == 0 && Is(info) && f.Chmod(info.Mode()&^0o020) == nil {
		return nil
	}
	return fmt.Errorf("others can write to %s (mode %04o); run: chmod go-w %[1]s", name, info.Mode().Perm())
}

// File refuses an open file that is not plain, has a second name, or belongs to another user.
func File(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || names(info) > 1 {
		return fmt.Errorf("%s is not a plain file", f.Name())
	}
	return mine(info, f.Name(), remote(f))
}

// Write replaces what is in a file that a user has named, and makes it with perm if there is none. It may be a device or a FIFO, and
// somebody else's where nobody else could have put it, such as what a container's runtime has made, or was given to this process as a
// descriptor, such as the pipe of another user's that is the standard error of what root runs for him.
func Write(path string, data []byte, perm fs.FileMode) error {
	given, err := walk(path)
	if err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | unix.O_NONBLOCK
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		flags |= unix.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, perm)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !given && owner(info) != 0 && !sheltered(path) {
		err = mine(info, path, remote(f))
	}
	if err == nil && info.Mode().IsRegular() {
		if names(info) > 1 && !given {
			err = fmt.Errorf("%s has other names too", path)
		} else {
			err = f.Truncate(0)
		}
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

// names is how many a file has: none where it was removed, or never had one.
func names(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) } //nolint:unconvert // it is 32 bits wide elsewhere

// sheltered says that nobody but root and this user can put a file where one is.
func sheltered(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	info, err := os.Stat(filepath.Dir(real))
	return err == nil && (owner(info) == 0 || Is(info)) && info.Mode().Perm()&0o022 == 0
}

// Is reports whether a file is this user's.
func Is(info fs.FileInfo) bool { return owner(info) == me() }

// mine refuses what belongs to another user.
func mine(info fs.FileInfo, name string, remote bool) error {
	if Is(info) || me() == 0 && remote {
		return nil
	}
	return fmt.Errorf("%s belongs to uid %d, not to uid %d", name, owner(info), me())
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// remotes are the file systems of other machines, by their magic numbers (statfs(2)).
var remotes = []int64{
	unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
	unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, 0x0BD00BD0 /* Lustre */, 0x47504653, /* GPFS */
	0x19830326 /* BeeGFS */, 0x18031977 /* WekaFS */, 0xAAD7AAEA, /* PanFS */
}

func remote(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && slices.Contains(remotes, int64(st.Type)) //nolint:unconvert // it is 32 bits wide elsewhere
}
