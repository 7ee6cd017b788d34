package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/report"
)

// Incoming is an archive that has arrived in part.
type Incoming struct {
	cache *Cache
	want  report.Workspace
	file  *os.File
	sum   hash.Hash
	bytes int64
	ended bool
}

// Receive begins to receive an archive. The caller must call Abort in the end.
func (c *Cache) Receive(w report.Workspace) (*Incoming, error) {
	in := &Incoming{cache: c, want: w, sum: sha256.New()}
	err := c.locked(func() (err error) {
		c.sweepParts()
		if in.file, err = os.CreateTemp(c.dir, "*"+partSuffix); err == nil {
			err = unix.Flock(int(in.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot keep a workspace: %w", err)
	}
	return in, nil
}

// Write appends the next bytes.
func (in *Incoming) Write(b []byte) (int, error) {
	if in.bytes+int64(len(b)) > in.want.Bytes {
		return 0, fmt.Errorf("the workspace has more than %d bytes", in.want.Bytes)
	}
	n, err := in.file.Write(b)
	in.bytes += int64(n)
	in.sum.Write(b[:n])
	if err != nil {
		err = fmt.Errorf("cannot keep a workspace in %s: %w", in.cache.dir, plain(err))
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w; free space there", err)
	}
	return n, err
}

// Rewind drops the bytes received so far.
func (in *Incoming) Rewind() error {
	in.bytes = 0
	in.sum.Reset()
	if err := in.file.Truncate(0); err != nil {
		return err
	}
	_, err := in.file.Seek(0, io.SeekStart)
	return err
}

// Received is how many bytes have arrived.
func (in *Incoming) Received() int64 { return in.bytes }

// Commit keeps the archive, unless its content is wrong.
func (in *Incoming) Commit() (*Archive, error) {
	if id := hex.EncodeToString(in.sum.Sum(nil)); in.bytes != in.want.Bytes || id != in.want.ID {
		return nil, fmt.Errorf("the workspace has come with %d bytes and the hash %.12s, instead of %d and %.12s", in.bytes, id, in.want.Bytes, in.want.ID)
	}
	a := &Archive{in.want, in.file}
	err := in.cache.locked(func() error {
		if err := unix.Flock(int(in.file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			return err
		}
		if err := os.Rename(in.file.Name(), in.cache.path(in.want.ID)); err != nil {
			return err
		}
		in.cache.evict()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot keep a workspace: %w", err)
	}
	in.ended = true
	return a, in.cache.know(a)
}

// Abort removes an archive that was not committed.
func (in *Incoming) Abort() {
	if !in.ended {
		in.ended = true
		_ = os.Remove(in.file.Name()) // the next process that receives an archive tries again
		in.file.Close()
	}
}
