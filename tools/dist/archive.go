package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	body []byte
}

// archives are the binaries and the files that accompany them, to unpack anywhere.
func (r *release) archives() error {
	for _, arch := range architectures {
		if err := r.archive(r.plain[arch], "_linux_"+arch); err != nil {
			return err
		}
		if err := r.archive(r.static[arch], "_linux_"+arch+"_static"); err != nil {
			return err
		}
	}
	return r.archive(r.linked, "_linux_amd64_cgo")
}

func (r *release) archive(binary, parts string) error {
	body, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	name := r.name(parts)
	files := append([]file{{"golaunch", 0o755, body}}, r.common...)
	for i := range files {
		files[i].name = filepath.Base(name) + "/" + files[i].name
	}
	return r.write(name+".tar.gz", func(w io.Writer) error { return zipped(w, files, r.at) })
}

// write makes a file of the release.
func (r *release) write(name string, to func(io.Writer) error) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			err = fmt.Errorf("make %s: %w", filepath.Base(name), err)
		}
	}()
	return to(f)
}

// zipped writes an archive whose bytes depend only on the files and the time.
func zipped(w io.Writer, files []file, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := tarred(z, files, at); err != nil {
		return err
	}
	return z.Close()
}

// tarred writes files and their directories, as root's.
func tarred(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	made := map[string]bool{}
	for _, f := range files {
		parts := strings.Split(f.name, "/")
		for i := 1; i < len(parts); i++ {
			dir := strings.Join(parts[:i], "/") + "/"
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR}); err != nil {
				return err
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.body)), ModTime: at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.body); err != nil {
			return err
		}
	}
	return t.Close()
}

// checksums writes the checksums of all other files, for sha256sum -c.
const checksums = "SHA256SUMS"

func (r *release) checksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range files {
		if f.Name() == checksums {
			continue
		}
		body, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(body), f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, checksums), sums.Bytes(), 0o644)
}
