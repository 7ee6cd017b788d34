package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the two formats of packages
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// described lists the contents of a system package, and their places.
const described = "files/nfpm.yaml"

// packages are deb and rpm for each architecture, with the binary for any glibc.
func (r *release) packages() error {
	if err := r.lay(); err != nil {
		return err
	}
	for _, arch := range architectures {
		for _, format := range []string{"deb", "rpm"} {
			env := map[string]string{"ARCH": arch, "VERSION": r.version, "STAGE": r.stage}
			config, err := nfpm.ParseFileWithEnvMapping(described, func(name string) string { return env[name] })
			if err != nil {
				return err
			}
			info, err := config.Get(format)
			if err != nil {
				return err
			}
			info = nfpm.WithDefaults(info)
			info.MTime, info.RPM.BuildHost = r.at, "localhost"
			for _, c := range info.Contents {
				if c.FileInfo == nil {
					c.FileInfo = &files.ContentFileInfo{}
				}
				c.FileInfo.MTime = r.at
			}
			packager, err := nfpm.Get(format)
			if err != nil {
				return err
			}
			name := filepath.Join(r.out, packager.ConventionalFileName(info))
			if err := r.write(name, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// lay puts a binary's files where the description of the packages finds them. It compresses manual
// pages.
func (r *release) lay() error {
	for _, f := range r.common {
		name, body := filepath.Join(r.stage, "common", f.name), f.body
		if strings.HasPrefix(f.name, "man/") {
			var z bytes.Buffer
			w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
			if err != nil {
				return err
			}
			if _, err := w.Write(body); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			name, body = name+".gz", z.Bytes()
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, body, 0o644); err != nil {
			return err
		}
	}
	return nil
}
