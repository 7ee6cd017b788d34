package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var tests = context.Background()

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := made(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// limit is longer than any of these commands takes, unless it hangs.
const limit = 5 * time.Minute

// do runs a command and returns its output.
func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func try(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPip: pip installs and removes golaunch, as the command, as a module, and in place of
// torchrun.
func TestPip(t *testing.T) {
	wheel, instead := one(t, "golaunch-*manylinux2014_x86_64.whl"), one(t, "golaunch_torchrun-*.whl")
	if info, err := os.Stat(wheel); err != nil || info.Size() > 12<<20 {
		t.Errorf("the wheel has %d bytes (%v)", info.Size(), err)
	}
	venv := filepath.Join(t.TempDir(), "venv")
	do(t, "python3", "-m", "venv", venv)
	bin := func(name string) string { return filepath.Join(venv, "bin", name) }
	before := do(t, "find", venv, "-not", "-name", "*.pyc", "-not", "-name", "__pycache__")
	pip := func(args ...string) string { return do(t, bin("pip"), append(args, "--disable-pip-version-check")...) }
	pip("install", "--no-index", wheel, instead)
	pip("check")
	if out := do(t, bin("golaunch"), "-n", "2", "--", bin("python"), "-c", `import os; print("rank", os.environ["RANK"])`); !strings.Contains(out, "rank 1\n") {
		t.Errorf("as a command: %s", out)
	}
	if out := do(t, bin("python"), "-m", "golaunch", "version"); !strings.HasPrefix(out, "golaunch v") {
		t.Errorf("as a module: %s", out)
	}
	workers := `
import golaunch
with golaunch.VirtualCluster([2]) as cluster:
    print(golaunch.WorkerGroup(cluster, "os.path:join", "a", show_output=False).run_all_workers_single_data("upper").result(60))
`
	if out := do(t, bin("python"), "-c", workers); out != "['A', 'A']\n" {
		t.Errorf("as a package: %s", out)
	}

	script := filepath.Join(t.TempDir(), "train.py")
	program := `import os, sys; print("rank", os.environ.get("RANK"), sys.argv[1:], sys.executable.startswith("` + venv + `"))`
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	own := "#!" + bin("python") + "\nprint('torch itself')\n"
	if err := os.WriteFile(bin("torchrun"), []byte(own), 0o755); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(venv, linked); err != nil {
		t.Fatal(err)
	}
	for _, call := range [][]string{
		{filepath.Join(linked, "bin/torchrun"), "--standalone", "--nproc-per-node", "2", script, "--a"},
		{bin("torchrun"), "--standalone", "--nproc-per-node", "2", script, "--a"},
		{bin("python"), "-um", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, "--a"},
	} {
		if out := do(t, call[0], call[1:]...); !strings.Contains(out, "rank 1 ['--a'] True\n") {
			t.Errorf("%s: %s", strings.Join(call, " "), out)
		}
	}
	if out := do(t, bin("python"), script); strings.Contains(out, "golaunch") {
		t.Errorf("no torchrun was called: %s", out)
	}
	pip("uninstall", "-y", "golaunch-torchrun")
	if out := do(t, bin("torchrun")); out != "torch itself\n" {
		t.Errorf("torchrun is not torch's again: %s", out)
	}
	if err := os.Remove(bin("torchrun")); err != nil {
		t.Fatal(err)
	}
	pickle := do(t, "/usr/bin/python3", "-c", "import cloudpickle; print(cloudpickle.__path__[0], end='')")
	if err := os.Symlink(pickle, filepath.Join(filepath.Dir(script), "cloudpickle")); err != nil {
		t.Fatal(err)
	}
	pip("install", "--no-index", "--no-deps", one(t, "golaunch_ray-*.whl"))
	if out := do(t, "env", "PYTHONPATH="+filepath.Dir(script), bin("ray"), "--version"); !strings.HasSuffix(out, " (golaunch-ray)\n") {
		t.Errorf("the command ray: %s", out)
	}
	pip("uninstall", "-y", "golaunch", "golaunch-ray")
	if after := do(t, "find", venv, "-not", "-name", "*.pyc", "-not", "-name", "__pycache__"); after != before {
		t.Errorf("something is left in the venv:\n%s\nbefore it was\n%s", after, before)
	}
}

// TestWheels: pip accepts the wheels on the machines that they are for, with glibc or musl, and
// refuses them on others.
func TestWheels(t *testing.T) {
	venv := filepath.Join(t.TempDir(), "venv") // Debian's own Python may have no pip
	do(t, "python3", "-m", "venv", venv)
	for _, c := range []struct{ wheel, platform, python, refused string }{
		{"manylinux2014_x86_64", "manylinux2014_x86_64", "3.9", ""},
		{"manylinux2014_x86_64", "manylinux2014_x86_64", "3.14", ""},
		{"musllinux_1_1_x86_64", "musllinux_1_1_x86_64", "3.12", ""},
		{"manylinux2014_aarch64", "manylinux2014_aarch64", "3.13", ""},
		{"musllinux_1_1_aarch64", "musllinux_1_1_aarch64", "3.13", ""},
		{"musllinux_1_1_x86_64", "manylinux2014_x86_64", "3.12", "is not a supported wheel on this platform"},
		{"manylinux2014_x86_64", "win_amd64", "3.12", "is not a supported wheel on this platform"},
	} {
		to := t.TempDir()
		out, err := try(t, filepath.Join(venv, "bin/pip"), "install", "--no-index", "--disable-pip-version-check", "--only-binary=:all:", "--platform", c.platform,
			"--python-version", c.python, "--target", to, one(t, "golaunch-*"+c.wheel+".whl"))
		if (err == nil) != (c.refused == "") || !strings.Contains(out, c.refused) {
			t.Errorf("%s for Python %s on %s: %v\n%s", c.wheel, c.python, c.platform, err, out)
		}
		if err == nil && strings.HasSuffix(c.wheel, "x86_64") {
			found := do(t, "env", "PYTHONPATH="+to, "python3", "-c", "import golaunch; print(golaunch.find_binary())")
			if filepath.Clean(strings.TrimSpace(found)) != filepath.Join(to, "bin/golaunch") {
				t.Errorf("in a --target directory the command is %s", found)
			}
		}
	}
	z, err := zip.OpenReader(one(t, "golaunch-*manylinux2014_aarch64.whl"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "METADATA") && !strings.Contains(text(t, f), "\nRequires-Python: >=3.9\n") {
			t.Errorf("older Pythons are not refused:\n%s", text(t, f))
		}
		if f.Modified.Year() < 2026 || strings.Contains(f.Name, "__pycache__") {
			t.Errorf("%s of %s", f.Name, f.Modified)
		}
	}
}

func text(t *testing.T, f *zip.File) string {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestImage: the image is complete. It has golaunch and nothing else, and its container can do
// nothing except copy golaunch.
func TestImage(t *testing.T) {
	dir := unpacked(t, one(t, "*_oci.tar"))
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	outer, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := inner.IndexManifest()
	if err != nil || len(platforms.Manifests) != 2 {
		t.Fatalf("%v: %+v", err, platforms)
	}
	i := slices.IndexFunc(platforms.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == runtime.GOARCH })
	image, err := inner.Image(platforms.Manifests[i].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" {
		t.Fatalf("%v: %+v", err, config)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	root := untar(t, content)
	needRoot(t)
	volume := filepath.Join(root, "volume")
	for _, dir := range []string{volume, filepath.Join(root, "proc")} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	contained := func(user string, args ...string) {
		t.Helper()
		const script = `root=$1 user=$2; shift 2; mount -t proc proc "$root/proc" && exec chroot --userspec="$user" "$root" "$@"`
		do(t, "unshare", append([]string{"--mount", "--pid", "--fork", "sh", "-c", script, "sh", root, user, config.Config.Entrypoint[0]}, args...)...)
	}
	if err := os.Chmod(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	contained(config.Config.User, "install", "--torchrun", "/volume")
	if out := do(t, filepath.Join(volume, "golaunch"), "version"); !strings.HasPrefix(out, "golaunch v") || !dynamic(t, filepath.Join(volume, "golaunch")) {
		t.Errorf("what was installed is not the build for glibc: %s", out)
	}
	contained(config.Config.User, "install", "--static", "/volume")
	if dynamic(t, filepath.Join(volume, "golaunch")) {
		t.Error("what was installed is not the static build")
	}
}

func dynamic(t *testing.T, name string) bool {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Section(".interp") != nil
}

// TestArchives checks the contents of the archives.
func TestArchives(t *testing.T) {
	for _, pattern := range []string{"*_linux_amd64.tar.gz", "*_linux_arm64.tar.gz", "*_linux_amd64_static.tar.gz", "*_linux_amd64_cgo.tar.gz"} {
		list := do(t, "tar", "tzf", one(t, pattern))
		for _, want := range []string{"/golaunch\n", "/man/golaunch.1\n", "/man/golaunch-agent.1\n", "/completions/golaunch.zsh\n", "/README.md\n"} {
			if !strings.Contains(list, want) {
				t.Errorf("%s has no %s:\n%s", pattern, want, list)
			}
		}
	}
	var bom cdx.BOM
	text, err := os.ReadFile(one(t, "*.cdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &bom)
	}
	if err != nil || !bytes.Contains(text, []byte("pkg:golang/google.golang.org/grpc@v")) || !bytes.Contains(text, []byte("/go-nvml@v")) {
		t.Errorf("the SBOM knows of no gRPC or go-nvml (%v)", err)
	}
}

func unpacked(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, f)
}

func untar(t *testing.T, r io.ReadCloser) string {
	t.Helper()
	defer r.Close()
	dir := t.TempDir()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else if body, failed := io.ReadAll(tr); failed == nil {
			err = os.WriteFile(name, body, os.FileMode(h.Mode))
		} else {
			err = failed
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("this needs root")
		}
		t.Skip("this needs root")
	}
}
