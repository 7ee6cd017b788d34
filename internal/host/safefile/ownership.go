// Package safefile refuses files and directories that another user may have planted.
//
// A user who can write to a directory can plant a file there, or a link to another file. Linux
// prevents some of this in directories with the sticky bit, depending on fs.protected_*
// (proc_sys_fs(5)). This package always prevents it, for root too. One rule applies to everything
// that golaunch makes or opens. The path to a directory follows no link that another user may have
// planted ([Path]). The directory belongs to this user, who alone can write to it ([Dir]). An
// existing file in it is a plain file of this user with a single name ([File]). [Write] writes a
// single file that the user named.
//
// Which links are followed depends on who else can write to the directory that has them:
//
//	only its owner: all links, because the owner allowed them
//	a group: links of root, of this user and of the directory's owner, who can write there anyway; so links in a home with umask 002 work
//	everybody: links of root and this user
//
// The last link of a path must belong to root or this user.
//
// "This user" is the user of the process or, if a process of root has taken a user's [Rights], that
// user.
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

// maxLinks bounds the links in a path, as Linux does (path_resolution(7)).
const maxLinks = 40

// Path refuses a path through a symbolic link that another user may have planted. It accepts
// missing files, and descriptors of this process.
func Path(path string) error {
	_, err := walk(path)
	return err
}

// walk does what Path does. given says that the path is a name for a descriptor of this process, as
// /dev/stderr is. The process that passed the descriptor on is responsible for it.
func walk(path string) (given bool, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	self, _ := os.Readlink("/proc/self") // the process's number in the PID namespace of /proc
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

// followed reports whether a link in dir may be followed. last says that it is the last element of
// the path.
func followed(link, dir fs.FileInfo, last bool) bool {
	switch {
	case owner(link) == 0 || Is(link):
		return true
	case last || dir == nil || dir.Mode().Perm()&0o002 != 0:
		return false
	}
	return dir.Mode().Perm()&0o020 == 0 || owner(link) == owner(dir)
}

// Open opens a directory. It does not block on a FIFO in its place.
func Open(dir string) (*os.Root, error) {
	return os.OpenRoot(dir + "/") // only a directory may have a slash behind it (path_resolution(7))
}

// Dir refuses a directory that belongs to another user or that other users can write to. In this
// user's own directory, it revokes write permission of the group: a umask of 002 grants it, and
// Kubernetes grants it to the fsGroup of a pod at each mount. [File] refuses files that the group
// put there before. On network file systems, which may map users and modes, Dir ignores modes, and
// lets root use a directory of any user.
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

// Write replaces the contents of a file that a user named, or makes the file with perm. The file
// may be a device or a FIFO. It may belong to another user in two cases. Either only root and this
// user can put files there, as a container's runtime does. Or the file is a descriptor of this
// process: if root runs a command for a user, standard error may be that user's pipe.
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

// names is the number of names of a file: 0 if it was removed or never had one.
func names(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) } //nolint:unconvert // it is 32 bits wide elsewhere

// sheltered reports whether only root and this user can put a file there.
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

// mine refuses a file of another user.
func mine(info fs.FileInfo, name string, remote bool) error {
	if Is(info) || me() == 0 && remote {
		return nil
	}
	return fmt.Errorf("%s belongs to uid %d, not to uid %d", name, owner(info), me())
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// remotes are network file systems by their magic numbers (statfs(2)).
var remotes = []int64{
	unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
	unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, 0x0BD00BD0 /* Lustre */, 0x47504653, /* GPFS */
	0x19830326 /* BeeGFS */, 0x18031977 /* WekaFS */, 0xAAD7AAEA, /* PanFS */
}

func remote(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && slices.Contains(remotes, int64(st.Type)) //nolint:unconvert // it is 32 bits wide elsewhere
}
