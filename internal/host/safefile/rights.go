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

// Rights are those of a user whom this process, which is root's, works for. Nil are its own.
type Rights struct {
	UID, GID uint32
	Groups   []uint32
}

// Of are the rights of who owns a file; nil if that is this process's user.
func Of(info fs.FileInfo) *Rights {
	if Is(info) {
		return nil
	}
	st := info.Sys().(*syscall.Stat_t)
	return &Rights{UID: st.Uid, GID: st.Gid}
}

// nobodys is what the kernel takes for no change of a user or a group (setresuid(2)), and so must never be set.
const nobodys = ^uint32(0)

// Credential is for a process that is the user's; nil for nil.
func (r *Rights) Credential() (*syscall.Credential, error) {
	switch {
	case r == nil:
		return nil, nil
	case r.UID == nobodys || r.GID == nobodys:
		return nil, fmt.Errorf("uid %d with gid %d is nobody", r.UID, r.GID)
	}
	return &syscall.Credential{Uid: r.UID, Gid: r.GID, Groups: r.Groups}, nil
}

// Do does f with these rights, as far as files are concerned (setfsuid(2)): what f opens, makes and removes the kernel lets it as it would let
// the user, what it makes is the user's, and what this package calls one's own is too. f must not start processes or goroutines that do so:
// the rights are those of one thread.
func (r *Rights) Do(f func() error) error {
	if r == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here, so that there are no rights to give back
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
	// These return what was, whether or not they have succeeded.
	_, _ = unix.SetfsgidRetGid(int(r.GID))
	_, _ = unix.SetfsuidRetUid(int(r.UID))
	gid, _ := unix.SetfsgidRetGid(-1)
	if gid != int(r.GID) || me() != int(r.UID) {
		return fmt.Errorf("only root can do what uid %d may do", r.UID)
	}
	return nil
}

// me is whose files this thread makes: the effective user of the process, but in [Rights.Do].
func me() int {
	uid, _ := unix.SetfsuidRetUid(-1) // which is nobody's, so that it changes nothing
	return uid
}

// with is Do for what returns a value.
func with[T any](r *Rights, f func() (T, error)) (v T, err error) {
	err = r.Do(func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// Root is a directory out of which no name leads, as [os.Root], in which all is done with somebody's rights.
type Root struct {
	root   *os.Root
	rights *Rights
}

// OpenRoot opens a directory, as [Open] does.
func OpenRoot(path string, r *Rights) (*Root, error) {
	root, err := with(r, func() (*os.Root, error) { return Open(path) })
	if err != nil {
		return nil, err
	}
	return &Root{root, r}, nil
}

// Own is [Dir], of whose rights these are.
func (d *Root) Own() error { return d.rights.Do(func() error { return Dir(d.root) }) }

// OpenRoot opens a directory in d, for somebody else, or the same.
func (d *Root) OpenRoot(name string, r *Rights) (*Root, error) {
	root, err := with(d.rights, func() (*os.Root, error) { return d.root.OpenRoot(name) })
	if err != nil {
		return nil, err
	}
	return &Root{root, r}, nil
}

// OpenFile opens a file, which may be anything.
func (d *Root) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return with(d.rights, func() (*os.File, error) { return d.root.OpenFile(name, flag, perm) })
}

// OpenOwn opens what is a [File] of one's own, or makes it, and never waits for who may be at the other end of a FIFO.
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

// Mkdir, and what follows, are those of an [os.Root].
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

// ReadDir has the entries of a directory, sorted by name.
func (d *Root) ReadDir(name string) ([]fs.DirEntry, error) {
	return with(d.rights, func() ([]fs.DirEntry, error) { return fs.ReadDir(d.root.FS(), name) })
}

// Glob has the names that match a pattern (path.Match).
func (d *Root) Glob(pattern string) ([]string, error) {
	return with(d.rights, func() ([]string, error) { return fs.Glob(d.root.FS(), pattern) })
}

func (d *Root) Name() string { return d.root.Name() }
func (d *Root) Close() error { return d.root.Close() }
