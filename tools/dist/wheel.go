package main

import (
	"archive/zip"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machines are pip's names of the architectures.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// wheels makes the wheels of a release. For each architecture, one wheel of the Python package has
// a binary for every version of glibc that pip has a name for (PEP 599), and another one a binary
// for musl (PEP 656). Two more wheels have the module ray, and the module that replaces torchrun by
// golaunch.
func (r *release) wheels() error {
	version, err := pythons(r.version)
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(r.root, "python/golaunch/*.py"))
	if err != nil {
		return err
	}
	var modules []file
	for _, source := range sources {
		body, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		modules = append(modules, file{"golaunch/" + filepath.Base(source), 0o644, body})
	}
	readme, err := os.ReadFile(filepath.Join(r.root, "README.md"))
	if err != nil {
		return err
	}
	for _, arch := range architectures {
		for libc, binary := range map[string]string{"manylinux2014_": r.plain[arch], "musllinux_1_1_": r.static[arch]} {
			body, err := os.ReadFile(binary)
			if err != nil {
				return err
			}
			w := wheel{
				name: "golaunch", version: version, platform: libc + machines[arch], summary: "starts, watches and restarts distributed training jobs",
				description: string(readme), files: append(slices.Clip(modules), file{"golaunch-" + version + ".data/scripts/golaunch", 0o755, body}),
			}
			if err := r.wheel(w); err != nil {
				return err
			}
		}
	}
	if err := r.rayWheel(version); err != nil {
		return err
	}
	instead, err := os.ReadFile(filepath.Join(r.root, "python/golaunch_torchrun.py"))
	if err != nil {
		return err
	}
	return r.wheel(wheel{
		name: "golaunch_torchrun", version: version, platform: "any", summary: "has golaunch run where torchrun is called in this environment",
		description: "While this package is installed, `torchrun` and `python -m torch.distributed.run` of its environment run golaunch.\n",
		requires:    []string{"golaunch==" + version},
		files:       []file{{"golaunch_torchrun.py", 0o644, instead}, {"golaunch_torchrun.pth", 0o644, []byte("import golaunch_torchrun\n")}},
	})
}

// rayWheel makes the module ray, which is in Python alone.
func (r *release) rayWheel(version string) error {
	var modules []file
	tree := os.DirFS(filepath.Join(r.root, "python"))
	err := fs.WalkDir(tree, "ray", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".py" {
			return err
		}
		body, err := fs.ReadFile(tree, path)
		modules = append(modules, file{path, 0o644, body})
		return err
	})
	if err != nil {
		return err
	}
	modules = append(modules, file{"golaunch_ray-" + version + ".dist-info/entry_points.txt", 0o644, []byte("[console_scripts]\nray = ray._command:main\n")})
	return r.wheel(wheel{
		name: "golaunch_ray", version: version, platform: "any", summary: "Ray's names on golaunch: programs written for a Ray cluster run on golaunch's",
		description: "The module `ray` on golaunch. It cannot be installed beside Ray itself. docs/from-ray.md of golaunch lists what it serves.\n",
		requires:    []string{"golaunch==" + version, "cloudpickle"}, files: modules,
	})
}

// wheel is a package in the format that pip installs
// (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
type wheel struct {
	name, version, platform, summary, description string
	requires                                      []string
	files                                         []file
}

func (w wheel) metadata() string {
	var s strings.Builder
	fmt.Fprintf(&s, "Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\n", strings.ReplaceAll(w.name, "_", "-"), w.version, w.summary)
	for _, r := range w.requires {
		fmt.Fprintf(&s, "Requires-Dist: %s\n", r)
	}
	fmt.Fprintf(&s, "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n%s", w.description)
	return s.String()
}

func (w wheel) tag() string {
	return fmt.Sprintf("Wheel-Version: 1.0\nGenerator: golaunch\nRoot-Is-Purelib: %t\nTag: py3-none-%s\n", w.platform == "any", w.platform)
}

func (r *release) wheel(w wheel) error {
	info := w.name + "-" + w.version + ".dist-info/"
	files := append(w.files, file{info + "METADATA", 0o644, []byte(w.metadata())}, file{info + "WHEEL", 0o644, []byte(w.tag())})
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.body)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.body))
	}
	files = append(files, file{info + "RECORD", 0o644, []byte(record.String() + info + "RECORD,,\n")})
	name := w.name + "-" + w.version + "-py3-none-" + w.platform + ".whl"
	return r.write(filepath.Join(r.out, name), func(to io.Writer) error {
		z := zip.NewWriter(to)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
		for _, f := range files {
			h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.at}
			h.SetMode(os.FileMode(f.mode))
			part, err := z.CreateHeader(h)
			if err != nil {
				return err
			}
			if _, err := part.Write(f.body); err != nil {
				return err
			}
		}
		return z.Close()
	})
}
