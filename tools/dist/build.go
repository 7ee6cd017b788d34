package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// release has the contents of a release, and its sources.
type release struct {
	root, stage, out string
	// version is semantic, without a v. For a release, version is also in the binaries. at is the time
	// of the commit, and the time of all files.
	version, marks string
	at             time.Time
	info           *debug.BuildInfo
	// deps are the modules of all binaries together.
	deps []*debug.Module
	// plain are the binaries without cgo, by architecture. They find GPUs through libc's loader,
	// with any glibc. static are the binaries that run without a glibc, and linked is the binary
	// with cgo.
	plain, static map[string]string
	linked        string
	// common are the files that accompany each binary.
	common []file
}

// architectures are Go's names of the architectures of a release.
var architectures = []string{"amd64", "arm64"}

// build makes the binaries and the files that accompany them.
func build(ctx context.Context, root, stage string) (*release, error) {
	r := &release{root: root, stage: stage, plain: map[string]string{}, static: map[string]string{}}
	if err := r.mark(); err != nil {
		return nil, err
	}
	for _, arch := range architectures {
		r.plain[arch], r.static[arch] = filepath.Join(stage, arch, "golaunch"), filepath.Join(stage, arch+"_static", "golaunch")
		for tags, to := range map[string]string{"grpcnotrace": r.plain[arch], "grpcnotrace,static": r.static[arch]} {
			if err := r.compile(ctx, to, "-s -w", tags, "GOARCH="+arch, "CGO_ENABLED=0"); err != nil {
				return nil, err
			}
		}
	}
	r.linked = filepath.Join(stage, "cgo", "golaunch")
	// With -z lazy, as in make build, the loader looks up a function of NVML only when it is called:
	// NVML is not loaded yet when the program starts. go-nvml calls functions that nvml.h calls
	// deprecated.
	err := r.compile(ctx, r.linked, "-s -w -extldflags=-Wl,-z,lazy", "grpcnotrace", "GOARCH=amd64", "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
	if err != nil {
		return nil, err
	}
	if err := r.depend(); err != nil {
		return nil, err
	}
	if err := r.accompany(ctx); err != nil {
		return nil, err
	}
	return r, r.identify(ctx)
}

// mark marks the binaries as a release if CHANGELOG.md lists nothing unreleased and begins with the
// version in the repository.
func (r *release) mark() error {
	version, err := os.ReadFile(filepath.Join(r.root, "internal/wire/version/VERSION"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "\n## Unreleased\n")
	if strings.HasPrefix(strings.TrimSpace(rest), "## "+strings.TrimSpace(string(version))+" - ") {
		r.marks = " -X github.com/golaunch/golaunch/internal/wire/version.released=yes"
	}
	return nil
}

func (r *release) compile(ctx context.Context, to, ldflags, tags string, env ...string) error {
	path, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-tags="+tags, "-ldflags="+ldflags+r.marks, "-o", path, "./cmd/golaunch")
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, append(os.Environ(), append(env, "GOOS=linux", "GOFLAGS=")...), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build golaunch (%s): %w", strings.Join(env, " "), err)
	}
	return nil
}

// identify reads the commit's time and the version from a binary.
func (r *release) identify(ctx context.Context) error {
	info, err := buildinfo.ReadFile(r.plain["amd64"])
	if err != nil {
		return fmt.Errorf("read the version of golaunch: %w", err)
	}
	r.info = info
	var shown struct{ Version string }
	out, err := r.run(ctx, filepath.Join(r.stage, "here", "golaunch"), "version", "--json")
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	if err != nil {
		return err
	}
	r.version = strings.TrimPrefix(shown.Version, "v")
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			r.at, err = time.Parse(time.RFC3339, s.Value)
			return err
		}
	}
	return errors.New("the go command found no time of a commit: build in a clone with git")
}

// depend reads the modules of the binaries.
func (r *release) depend() error {
	for _, binary := range append(slices.Collect(maps.Values(r.plain)), r.linked) {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("read the modules of golaunch: %w", err)
		}
		for _, d := range info.Deps {
			if !slices.ContainsFunc(r.deps, func(known *debug.Module) bool { return known.Path == d.Path }) {
				r.deps = append(r.deps, d)
			}
		}
	}
	slices.SortFunc(r.deps, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// accompany runs a binary for this machine, which writes the completions and the manual pages.
func (r *release) accompany(ctx context.Context) error {
	here := filepath.Join(r.stage, "here", "golaunch")
	if err := r.compile(ctx, here, "", "man", "CGO_ENABLED=0"); err != nil {
		return err
	}
	pages := filepath.Join(r.stage, "man")
	if err := os.Mkdir(pages, 0o755); err != nil {
		return err
	}
	if _, err := r.run(ctx, here, "_man", pages); err != nil {
		return err
	}
	found, err := os.ReadDir(pages)
	if err != nil {
		return err
	}
	for _, page := range found {
		body, err := os.ReadFile(filepath.Join(pages, page.Name()))
		if err != nil {
			return err
		}
		r.common = append(r.common, file{"man/" + page.Name(), 0o644, body})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := r.run(ctx, here, "completion", shell)
		if err != nil {
			return err
		}
		r.common = append(r.common, file{"completions/golaunch." + shell, 0o644, script})
	}
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		body, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		r.common = append(r.common, file{name, 0o644, body})
	}
	return nil
}

func (r *release) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return out, nil
}

// name returns the name of a file of this release.
func (r *release) name(parts string) string {
	return filepath.Join(r.out, "golaunch_"+strings.ReplaceAll(r.version, "+", ".")+parts)
}

// preview returns the parts of a version that precedes a release, with the text after a + (see
// internal/wire/version).
var (
	preview = regexp.MustCompile(`^(\d+\.\d+\.\d+)-(a|b|rc|alpha|beta)\.?(\d+)(\+[0-9a-z.]+)?$`)
	plain   = regexp.MustCompile(`^\d+\.\d+\.\d+(\+[0-9a-z.]+)?$`)
)

// pythons returns a version in the form of Python
// (https://packaging.python.org/en/latest/specifications/version-specifiers/).
func pythons(version string) (string, error) {
	if m := preview.FindStringSubmatch(version); m != nil {
		return m[1] + map[string]string{"a": "a", "alpha": "a", "b": "b", "beta": "b", "rc": "rc"}[m[2]] + m[3] + m[4], nil
	}
	if plain.MatchString(version) {
		return version, nil
	}
	return "", fmt.Errorf("version %s cannot be written as one of Python: use vX.Y.Z, or vX.Y.Z-rc.N", version)
}
