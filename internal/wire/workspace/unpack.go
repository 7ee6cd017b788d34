package workspace

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// errForeign says that golaunch has not packed an archive.
var errForeign = errors.New("this is no workspace that golaunch has packed")

// Unpack makes an archive's files in an empty directory. It refuses any archive that pack would not
// write. It makes no more bytes than the archive has, and no file outside the directory. After an
// error the directory has a part of the files.
func Unpack(archive io.Reader, size int64, dir *os.Root) error {
	u := unpacker{dir: dir, room: size}
	in := tar.NewReader(archive)
	h, err := in.Next()
	if err != nil || h.Typeflag != tar.TypeXGlobalHeader || !strings.HasPrefix(h.PAXRecords[comment], "golaunch-workspace-") {
		return errForeign
	}
	if f := h.PAXRecords[comment]; f != format {
		return fmt.Errorf("the workspace has the format %q, and this golaunch knows %q; install the same golaunch on all nodes", f, format)
	}
	for entries := 0; ; entries++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errForeign, err)
		}
		if entries == maxEntries {
			return fmt.Errorf("%w: it has more than %d entries", errForeign, maxEntries)
		}
		if err := u.make(h, in); err != nil {
			return err
		}
	}
}

type unpacker struct {
	dir *os.Root
	// room is how many more bytes the files may have.
	room int64
	// dirs are the directories. They get their modes in the end, because some modes forbid writing.
	dirs []dirMode
}

type dirMode struct {
	name string
	mode fs.FileMode
}

func (u *unpacker) make(h *tar.Header, content io.Reader) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if name == "." || !filepath.IsLocal(name) || path.Clean(name) != name {
		return fmt.Errorf("%w: it has a file %q", errForeign, h.Name)
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, dirMode{name, mode})
		return u.dir.Mkdir(name, 0o700)
	case tar.TypeSymlink:
		if !staysInside(name, h.Linkname) {
			return fmt.Errorf("%w: %q is a link to %q", errForeign, name, h.Linkname)
		}
		return u.dir.Symlink(h.Linkname, name)
	case tar.TypeReg:
		if u.room -= h.Size; u.room < 0 {
			return fmt.Errorf("%w: its files are larger than it is", errForeign)
		}
		return u.file(name, mode, h.Size, content)
	}
	return fmt.Errorf("%w: %q has the type %q", errForeign, name, h.Typeflag)
}

func (u *unpacker) file(name string, mode fs.FileMode, size int64, content io.Reader) error {
	f, err := u.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	if err == nil && n != size {
		err = errForeign
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

// finish gives directories their modes, inner ones first.
func (u *unpacker) finish() error {
	for _, d := range slices.Backward(u.dirs) {
		if err := u.dir.Chmod(d.name, d.mode); err != nil {
			return err
		}
	}
	return nil
}
