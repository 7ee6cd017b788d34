package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights are the rights of a user. With them, a process that root runs works as this user. Nil
// means the process's own rights.
type Rights struct {
	UID, GID uint32
	Groups   []uint32
}

// Of returns the rights of a file's owner; nil if the owner is this process's user.
func Of(info fs.FileInfo) *Rights {
	if Is(info) {
		return nil
	}
	st := info.Sys().(*syscall.Stat_t)
	return &Rights{UID: st.Uid, GID: st.Gid}
}

// unset is the value that tells the kernel to leave a user or group unchanged (setresuid(2)). It
// must never be set as an id.
const unset = ^uint32(0)

// Credential returns what os/exec needs to start a process as the user; nil if r is nil.
func (r *Rights) Credential() (*syscall.Credential, error) {
	switch {
	case r == nil:
		return nil, nil
	case r.UID == unset || r.GID == unset:
		return nil, fmt.Errorf("uid %d with gid %d is no user", r.UID, r.GID)
	}
	return &syscall.Credential{Uid: r.UID, Gid: r.GID, Groups: r.Groups}, nil
}

// Do runs f with these rights to files (setfsuid(2)): the kernel checks access as for the user, new
// files belong to the user, and this package treats the user's files as its own. f must not start
// processes or goroutines that need the rights, which belong to one thread.
func (r *Rights) Do(f func() error) error {
	if r == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends here, so no rights need to be restored
		err := r.assume()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (r *Rights) assume() error {
	if _, err := r.Credential(); err != nil {
		return err
	}
	groups := unsafe.Pointer(unsafe.SliceData(r.Groups))
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(r.Groups)), uintptr(groups), 0); errno != 0 {
		return fmt.Errorf("take the groups of uid %d: %w", r.UID, errno)
	}
	// These calls return the previous value whether or not they succeed.
	_, _ = unix.SetfsgidRetGid(int(r.GID))
	_, _ = unix.SetfsuidRetUid(int(r.UID))
	gid, _ := unix.SetfsgidRetGid(-1)
	if gid != int(r.GID) || me() != int(r.UID) {
		return fmt.Errorf("only root can do what uid %d may do", r.UID)
	}
	return nil
}

// me is the owner of files that this thread makes: the effective user, or the user of
// [Rights.Do].
func me() int {
	uid, _ := unix.SetfsuidRetUid(-1) // an invalid user changes nothing
	return uid
}

// with does what Do does, for a function with a result.
func with[T any](r *Rights, f func() (T, error)) (v T, err error) {
	err = r.Do(func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// Root is an [os.Root] with a user's rights for each access: no name leads out of it.
type Root struct {
	root   *os.Root
	rights *Rights
}

// OpenRoot opens a directory as [Open] does.
func OpenRoot(path string, r *Rights) (*Root, error) {
	root, err := with(r, func() (*os.Root, error) { return Open(path) })
	if err != nil {
		return nil, err
	}
	return &Root{root, r}, nil
}

// Own calls [Dir] with these rights.
func (d *Root) Own() error { return d.rights.Do(func() error { return Dir(d.root) }) }

// OpenRoot opens a directory in d, with the rights of a user.
func (d *Root) OpenRoot(name string, r *Rights) (*Root, error) {
	root, err := with(d.rights, func() (*os.Root, error) { return d.root.OpenRoot(name) })
	if err != nil {
		return nil, err
	}
	return &Root{root, r}, nil
}

// OpenFile opens a file of any kind.
func (d *Root) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return with(d.rights, func() (*os.File, error) { return d.root.OpenFile(name, flag, perm) })
}

// OpenOwn opens or makes a file that [File] accepts. It does not block on a FIFO.
func (d *Root) OpenOwn(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return with(d.rights, func() (*os.File, error) {
		f, err := d.root.OpenFile(name, flag|unix.O_NONBLOCK, perm)
		if err != nil {
			return nil, err
		}
		if err := File(f); err != nil {
			_ = f.Close() // nothing was written
			return nil, err
		}
		return f, nil
	})
}

// Mkdir and the following methods do what the methods of an [os.Root] do.
func (d *Root) Mkdir(name string, perm fs.FileMode) error {
	return d.rights.Do(func() error { return d.root.Mkdir(name, perm) })
}

func (d *Root) MkdirAll(name string, perm fs.FileMode) error {
	return d.rights.Do(func() error { return d.root.MkdirAll(name, perm) })
}

func (d *Root) Lchown(name string, uid, gid int) error {
	return d.rights.Do(func() error { return d.root.Lchown(name, uid, gid) })
}

func (d *Root) Lstat(name string) (fs.FileInfo, error) {
	return with(d.rights, func() (fs.FileInfo, error) { return d.root.Lstat(name) })
}

func (d *Root) Stat(name string) (fs.FileInfo, error) {
	return with(d.rights, func() (fs.FileInfo, error) { return d.root.Stat(name) })
}

func (d *Root) Readlink(name string) (string, error) {
	return with(d.rights, func() (string, error) { return d.root.Readlink(name) })
}

func (d *Root) Remove(name string) error {
	return d.rights.Do(func() error { return d.root.Remove(name) })
}

func (d *Root) RemoveAll(name string) error {
	return d.rights.Do(func() error { return d.root.RemoveAll(name) })
}

func (d *Root) Rename(from, to string) error {
	return d.rights.Do(func() error { return d.root.Rename(from, to) })
}

func (d *Root) Symlink(target, name string) error {
	return d.rights.Do(func() error { return d.root.Symlink(target, name) })
}

// ReadDir returns the entries of a directory, sorted by name.
func (d *Root) ReadDir(name string) ([]fs.DirEntry, error) {
	return with(d.rights, func() ([]fs.DirEntry, error) { return fs.ReadDir(d.root.FS(), name) })
}

// Glob returns the names that match a pattern (path.Match).
func (d *Root) Glob(pattern string) ([]string, error) {
	return with(d.rights, func() ([]string, error) { return fs.Glob(d.root.FS(), pattern) })
}

func (d *Root) Name() string { return d.root.Name() }
func (d *Root) Close() error { return d.root.Close() }
