// Dist makes a release of golaunch from the commit that is checked out:
//
//	go run . -o DIR
//
// For linux on amd64 and arm64 it makes archives with the binary for any glibc and with the static
// one, deb and rpm packages, and wheels for pip. It also makes an archive with the binary that is
// built with cgo (amd64), a container image (both architectures), a Helm chart, a list of all parts
// of the binaries (SBOM), and the checksums of everything. The version is the version in
// internal/wire/version/VERSION, with +devel and the commit if CHANGELOG.md has later changes. Two
// runs on one commit and one machine make the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	out := flag.String("o", "dist", "directory for what is made; what is in it goes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := dist(ctx, "../..", *out); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// dist makes a release of the repository at root.
func dist(ctx context.Context, root, out string) (err error) {
	stage, err := os.MkdirTemp("", "golaunch-dist-")
	if err != nil {
		return err
	}
	defer func() {
		if failed := os.RemoveAll(stage); err == nil {
			err = failed
		}
	}()
	if err := cleared(out); err != nil {
		return err
	}
	r, err := build(ctx, root, stage)
	if err != nil {
		return err
	}
	r.out = out
	for _, make := range []func() error{r.archives, r.packages, r.wheels, r.image, r.chart, r.sbom, r.checksums} {
		if err := errors.Join(ctx.Err(), make()); err != nil {
			return err
		}
	}
	return nil
}

// cleared makes a directory with an empty list of checksums and nothing else. By that list, the
// next run recognizes the directory as one of its own, even if this run does not finish.
func cleared(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, checksums)); err != nil && len(files) > 0 {
		return fmt.Errorf("%s has files that were not made here (there is no %s): name another directory, or remove them", dir, checksums)
	}
	if err := os.WriteFile(filepath.Join(dir, checksums), nil, 0o644); err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() == checksums {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
