package failurebundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// kept bounds a job's bundles on a node: the first, which most likely has the root cause, and the
// newest.
const kept = 5

// Write writes the archive into the directory of the job, and returns its name:
// bundle-NODE-attempt-N.tar.gz. If this node then has more than five archives, Write removes the
// oldest except the first.
func (b *Bundle) Write(dir *safefile.Root) (string, error) {
	name := Name(b.title.Node, b.title.Unit, b.title.Attempt)
	err := b.write(dir, name)
	if err == nil {
		err = prune(dir, b.title.Node)
	}
	if err != nil {
		return "", fmt.Errorf("keep the evidence of attempt %d on %s: %w", b.title.Attempt, b.title.Node, err)
	}
	return name, nil
}

// Name returns the name of an archive. The name omits unit 0: the gang or, in a job whose ranks
// restart on their own, its first ranks.
func Name(node string, unit, attempt int) string {
	if unit == 0 {
		return fmt.Sprintf("bundle-%s-attempt-%d.tar.gz", node, attempt)
	}
	return fmt.Sprintf("bundle-%s-unit-%d-attempt-%d.tar.gz", node, unit, attempt)
}

// write never leaves a partial archive under its name.
func (b *Bundle) write(dir *safefile.Root, name string) (err error) {
	part := name + ".part"
	f, err := dir.OpenOwn(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove(part))
		}
	}()
	if err := errors.Join(b.archive(f), f.Close()); err != nil {
		return err
	}
	return dir.Rename(part, name)
}

// index is the archive's first file, as docs/json.md describes.
type index struct {
	jsonout.Header
	Title
	Entries []entry `json:"entries"`
}

func (b *Bundle) archive(w io.Writer) error {
	var hidden secrets
	for _, env := range b.envs {
		hidden.learn(env)
	}
	mask, room := hidden.mask(), maxTotal
	for i := range b.entries {
		e := &b.entries[i]
		e.Missing = string(mask([]byte(e.Missing)))
		if !e.binary {
			e.data = mask(e.data)
		}
		if len(e.data) > room {
			e.data, e.Truncated, e.Missing = e.data[:room], true, "the archive is full"
		}
		e.Size = len(e.data)
		room -= e.Size
	}
	var list bytes.Buffer
	if err := jsonout.Print(&list, &index{Title: b.title, Entries: b.entries}); err != nil {
		return err
	}
	// Compress with little CPU time, because the next attempt starts meanwhile.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range append([]entry{{Name: "index.json", data: list.Bytes()}}, b.entries...) {
		if len(e.data) == 0 {
			continue
		}
		h := tar.Header{Name: e.Name, Mode: 0o600, Size: int64(len(e.data)), ModTime: b.title.Time}
		if err := t.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := t.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// prune removes bundles of a node until kept are left.
func prune(dir *safefile.Root, node string) error {
	type archive struct {
		name string
		at   time.Time
	}
	ours := regexp.MustCompile("^bundle-" + regexp.QuoteMeta(node) + `(-unit-\d+)?-attempt-\d+\.tar\.gz$`)
	entries, err := dir.ReadDir(".")
	if err != nil {
		return err
	}
	var all []archive
	for _, e := range entries {
		if info, err := e.Info(); err == nil && ours.MatchString(e.Name()) {
			all = append(all, archive{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b archive) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	var errs []error
	for _, a := range all[1:max(1, len(all)-kept+1)] {
		errs = append(errs, dir.Remove(a.name))
	}
	return errors.Join(errs...)
}
