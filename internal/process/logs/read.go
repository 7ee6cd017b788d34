package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	maxChunk = 64 << 10
	// maxErrors is the number of unreadable files that the error names. The error has only the
	// count of further such files.
	maxErrors = 16
)

// Reader reads the log files of a job, also while they are written. It has at most one file open,
// and belongs to one goroutine. It skips other files in the directory. It does not read links or
// other odd files: the final error names them, and also files that vanish or shrink.
type Reader struct {
	dir      *Dir
	filter   Filter
	follower *follower // nil: the reader reads no more than the existing output

	attempts []int // not yet listed
	turns    bool  // the follower names the files, and they take turns
	files    []File
	next     int            // in files
	at       map[File]int64 // bytes read of each file; negative if not read any more

	now      File
	file     *os.File // the open file that now names, or nil
	pos, end int64    // the part of file to read before the next file
	buf      []byte

	errs []error
	more int
}

// Read reads the current contents of the files, ordered by attempt, rank and stream. from has the
// offsets to start at, so that a reader may continue where another ended. A negative offset omits a
// file.
func (d *Dir) Read(filter Filter, from map[File]int64) *Reader {
	r := &Reader{dir: d, filter: filter, at: maps.Clone(from)}
	if r.at == nil {
		r.at = map[File]int64{}
	}
	var err error
	if r.attempts, err = d.attempts(filter); err != nil {
		r.report(fmt.Errorf("read the logs in %s: %w", d.path, err))
	}
	return r
}

// Follow reads the files as Read does, and then what ranks of this Dir write, until Done. The order
// is exact within a file. Between files it is roughly the order of the writes: each file with new
// output gives one chunk at a time. A slow caller delays no rank. Follow does not see later writes
// of other processes.
func (d *Dir) Follow(filter Filter, from map[File]int64) *Reader {
	o := newFollower(filter)
	d.hub.join(o)
	r := d.Read(filter, from)
	r.follower = o
	return r
}

// Done says that all ranks of the directory are closed. Readers that follow end once they have read
// everything.
func (d *Dir) Done() { d.hub.end() }

// Next returns the next chunk; its Data is valid until the following call. While the job runs, Next
// waits for a chunk until ctx ends; it may then be called again. At the end it returns io.EOF, or
// an error that names the files that it could not read completely.
func (r *Reader) Next(ctx context.Context) (Chunk, error) {
	for {
		if r.pos < r.end {
			if c, ok := r.chunk(); ok {
				return c, nil
			}
		}
		f, err := r.pick(ctx)
		if err != nil {
			return Chunk{}, err
		}
		r.begin(f)
	}
}

// Close ends the reader. Next must not be called after it.
func (r *Reader) Close() error {
	if r.follower != nil {
		r.dir.hub.leave(r.follower)
	}
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func (r *Reader) chunk() (Chunk, bool) {
	if r.buf == nil {
		r.buf = make([]byte, maxChunk)
	}
	n, err := r.file.ReadAt(r.buf[:min(maxChunk, r.end-r.pos)], r.pos)
	if n == 0 {
		r.fail(r.now, fmt.Errorf("byte %d is gone: %w", r.pos, err))
		return Chunk{}, false
	}
	c := Chunk{File: r.now, Offset: r.pos, Data: r.buf[:n]}
	r.pos += int64(n)
	r.at[r.now] = r.pos
	return c, true
}

func (r *Reader) pick(ctx context.Context) (File, error) {
	if err := ctx.Err(); err != nil {
		return File{}, err
	}
	for r.next == len(r.files) {
		if err := r.refill(ctx); err != nil {
			return File{}, err
		}
	}
	r.next++
	return r.files[r.next-1], nil
}

func (r *Reader) refill(ctx context.Context) error {
	r.next = 0
	switch {
	case len(r.attempts) > 0:
		r.listAttempt()
		return nil
	case r.follower == nil:
		r.files = nil
		return r.verdict()
	}
	// The order matters: once over is set, there are no more writes, so the files from take are
	// complete.
	over := r.dir.hub.over.Load()
	r.turns = true
	if r.files = r.follower.take(r.files); len(r.files) > 0 {
		return nil
	}
	if over {
		return r.verdict()
	}
	select {
	case <-r.follower.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reader) listAttempt() {
	var err error
	if r.files, err = r.dir.files(r.attempts[0], r.filter); err != nil {
		r.report(fmt.Errorf("read the logs of attempt %d in %s: %w", r.attempts[0], r.dir.path, err))
	}
	r.attempts = r.attempts[1:]
}

// begin opens a file to read it up to its current end; the hub reports later writes. A follower
// reads one chunk of a file per turn.
func (r *Reader) begin(f File) {
	offset := r.at[f]
	if offset < 0 {
		return
	}
	size, err := r.open(f)
	if err == nil && size < offset {
		err = fmt.Errorf("it has shrunk: byte %d was read, and it has %d", offset, size)
	}
	if err != nil {
		r.fail(f, err)
		return
	}
	r.pos, r.end = offset, size
	if r.turns && size-offset > maxChunk {
		r.end = offset + maxChunk
		r.follower.mark(f)
	}
}

func (r *Reader) open(f File) (int64, error) {
	if r.file == nil || r.now != f {
		if r.file != nil {
			r.file.Close()
		}
		var err error
		if r.file, err = openPlain(r.dir.root, f.path()); err != nil {
			r.file = nil
			return 0, err
		}
		r.now = f
	}
	info, err := r.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// openPlain opens a file in a directory that others may write to. It accepts only a regular file
// with a single name that no link leads to.
func openPlain(root *safefile.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		err = checkFile(root, name, opened)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(root *safefile.Root, name string, opened fs.FileInfo) error {
	named, err := root.Lstat(name)
	if err != nil {
		return err
	}
	st, ok := opened.Sys().(*syscall.Stat_t)
	if !ok || !opened.Mode().IsRegular() || st.Nlink != 1 || !os.SameFile(named, opened) {
		return fmt.Errorf("%s is not a plain file", name)
	}
	return nil
}

// fail stops reading a file.
func (r *Reader) fail(f File, err error) {
	r.at[f] = -1
	r.end = r.pos
	r.report(fmt.Errorf("read the %s (%s): %w", f, filepath.Join(r.dir.path, f.path()), err))
}

func (r *Reader) report(err error) {
	if len(r.errs) == maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, err)
}

func (r *Reader) verdict() error {
	switch {
	case len(r.errs) == 0:
		return io.EOF
	case r.more > 0:
		return errors.Join(append(slices.Clone(r.errs), fmt.Errorf("read the logs of job %s: %d more files failed", r.dir.job, r.more))...)
	}
	return errors.Join(r.errs...)
}
