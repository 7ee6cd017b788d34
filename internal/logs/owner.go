package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// CheckLink refuses a symbolic link that another user has made, unless that is root: it may lead anywhere, and be changed at any time. The
// kernel does so itself in directories that all may write to, where fs.protected_symlinks is set (proc_sys_fs(5)). What is not there is fine.
func CheckLink(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink == 0:
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is a symbolic link of uid %d, another user", path, st.Uid)
	}
	return nil
}

// elsewhere are the file systems of other machines, by their magic numbers (statfs(2)), where what root makes may belong to nobody.
var elsewhere = []int64{
	unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
	unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, 0x0BD00BD0 /* Lustre */, 0x47504653 /* GPFS */, 0x19830326, /* BeeGFS */
}

// checkOwner refuses a directory that another user has made, which may be full of what he likes. On file systems of other machines root's own
// may belong to anybody.
func (d *Dir) checkOwner(info fs.FileInfo, uid int) error {
	if owns(info, uid) || uid == 0 && (d.made || d.elsewhere()) {
		return nil
	}
	return fmt.Errorf("%s belongs to uid %d, not to uid %d", d.path, info.Sys().(*syscall.Stat_t).Uid, uid)
}

func owns(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

func (d *Dir) elsewhere() bool {
	var fs unix.Statfs_t
	return unix.Statfs(d.path, &fs) == nil && slices.Contains(elsewhere, int64(fs.Type)) //nolint:unconvert // it is 32 bits wide elsewhere
}
