package workspace

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

// format is the comment of an archive's first header. It changes when an older golaunch could not
// unpack the archive.
const format = "golaunch-workspace-1"

const comment = "comment"

// Describe describes the workspace that a directory would make, with at most limit bytes of files.
func Describe(dir string, limit int64) (report.Workspace, error) {
	return Write(io.Discard, dir, limit)
}

// Write writes the archive of a directory with at most limit bytes of files.
func Write(w io.Writer, dir string, limit int64) (report.Workspace, error) {
	t, err := scan(dir, limit)
	if err != nil {
		return report.Workspace{}, err
	}
	return t.pack(w)
}

// Text describes a workspace for people.
func Text(w report.Workspace) string {
	files := "files"
	if w.Files == 1 {
		files = "file"
	}
	return fmt.Sprintf("%.12s (%d %s, %s)", w.ID, w.Files, files, Size(w.Bytes))
}

// pack writes the archive of a tree, in the format of tar, sorted by name, without times and
// owners. So equal content makes equal archives.
func (t tree) pack(w io.Writer) (report.Workspace, error) {
	sum := sha256.New()
	counter := &counter{to: io.MultiWriter(sum, w)}
	buffered := bufio.NewWriterSize(counter, 256<<10)
	out := tar.NewWriter(buffered)
	err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Format: tar.FormatPAX, PAXRecords: map[string]string{comment: format}})
	for i := 0; err == nil && i < len(t.entries); i++ {
		err = t.write(out, t.entries[i])
	}
	if err == nil {
		err = errors.Join(out.Close(), buffered.Flush())
	}
	if counter.err != nil { // not the error of the file that was being read
		err = counter.err
	}
	if err != nil {
		return report.Workspace{}, err
	}
	return report.Workspace{ID: hex.EncodeToString(sum.Sum(nil)), Bytes: counter.bytes, Files: t.files}, nil
}

// counter counts bytes, and keeps the error of a failed write.
type counter struct {
	to    io.Writer
	bytes int64
	err   error
}

func (c *counter) Write(b []byte) (n int, err error) {
	c.bytes += int64(len(b))
	n, c.err = c.to.Write(b)
	return n, c.err
}

func (t tree) write(out *tar.Writer, e entry) error {
	h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Format: tar.FormatPAX}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return out.WriteHeader(h)
	case e.mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.target, 0o777
		return out.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.size
	f, err := os.OpenFile(filepath.Join(t.dir, e.name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return t.changed(e, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != e.size {
		return t.changed(e, err)
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	switch n, err := io.Copy(out, io.LimitReader(f, e.size)); {
	case err != nil:
		return fmt.Errorf("workspace %s: cannot read %q: %w", t.dir, e.name, plain(err))
	case n != e.size:
		return t.changed(e, nil)
	}
	return nil
}

// changed returns the error for a file that has changed since it was found.
func (t tree) changed(e entry, err error) error {
	if err == nil {
		err = errors.New("its size is another")
	}
	return fmt.Errorf("workspace %s: %q changed while it was packed (%w); try again", t.dir, e.name, plain(err))
}
