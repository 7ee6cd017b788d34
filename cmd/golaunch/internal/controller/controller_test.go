package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/internal/testkit/clustertest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// golaunch is the command that controllers start.
var golaunch string

func TestMain(m *testing.M) { suite.MainWith(m, &golaunch) }

const (
	testLimit = 10 * time.Minute
	tree      = "../../../../python"
)

// TestPython runs the tests of the Python package with the oldest and the newest CPython, or with
// every installed CPython ([suite.All]); some tests run with one of them. The tests of failures,
// which wait most, run with the first, or also with the second.
func TestPython(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(tree, "tests", "test_*.py"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tests of Python are found", err)
	}
	all, failures := interpreters(t), 2
	if !suite.All() {
		failures = 1
		if len(all) > 2 {
			all = slices.Delete(all, 1, len(all)-1)
		}
	}
	for i, python := range all {
		for _, file := range files {
			switch filepath.Base(file) {
			case "test_failures.py":
				if i >= failures {
					continue
				}
			case "test_docs.py":
				if i > 0 {
					continue
				}
			case "test_turns.py":
				if i > 0 && !suite.All() {
					continue
				}
			case "test_memory.py":
				if i < len(all)-1 && !suite.All() {
					continue
				}
			case "test_far.py", "test_gpus.py", "test_ray.py", "test_ray_command.py", "test_ray_far.py", "test_ray_gpus.py", "test_torch.py", "test_verl.py":
				continue
			}
			t.Run(filepath.Base(file)+" with "+python, func(t *testing.T) {
				t.Parallel()
				out := runPython(t, python, "OTHER_PYTHON="+other(all, i), file)
				if filepath.Base(file) == "test_failures.py" && strings.Contains(out, "skipped") && os.Getenv("CI") != "" {
					t.Errorf("a test was skipped, which must not be here; be root:\n%s", out)
				}
			})
		}
	}
}

// TestPythonOfTorch runs the tests that need NumPy and torch.
func TestPythonOfTorch(t *testing.T) {
	t.Parallel()
	python := os.Getenv("GOLAUNCH_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import numpy, torch").Run(); err != nil {
		suite.Missing(t, "%s has no NumPy or no torch: %v", python, err)
	}
	for _, name := range []string{"test_data.py", "test_torch.py"} {
		if out := runPython(t, python, "OTHER_PYTHON=", filepath.Join(tree, "tests", name)); strings.Contains(out, "skipped") {
			t.Errorf("a test of NumPy or torch was skipped:\n%s", out)
		}
	}
}

// TestPythonOfRay runs the tests of Ray's names, which need cloudpickle, NumPy for arrays, and
// torch for trainers.
func TestPythonOfRay(t *testing.T) {
	t.Parallel()
	python := pythonOfRay()
	if python == "" {
		suite.Missing(t, "no Python has cloudpickle")
	}
	for _, what := range [][]string{{"test_ray.py", "Programs"}, {"test_ray.py", "Failures"}, {"test_ray_command.py"}} {
		t.Run(strings.Join(what, " "), func(t *testing.T) {
			t.Parallel()
			if out := runRay(t, python, what...); strings.Contains(out, "skipped") && os.Getenv("CI") != "" {
				t.Errorf("a test was skipped: %s needs NumPy and torch, and to be root's:\n%s", python, out)
			}
		})
	}
	t.Run("test_ray_far.py", func(t *testing.T) {
		t.Parallel()
		cluster := clustertest.Start(t, 0, 0)
		runPython(t, python, "TEST_COORDINATOR="+cluster.Coordinator, filepath.Join(tree, "tests", "test_ray_far.py"), "TEST_TOKEN="+cluster.TokenFile, "PYTHONPATH="+abs(t, tree))
	})
}

// pythonOfRay is the first Python with cloudpickle, or empty.
func pythonOfRay() string {
	for _, python := range []string{os.Getenv("GOLAUNCH_TEST_PYTHON"), "/usr/bin/python3", "python3"} {
		if python != "" && exec.Command(python, "-c", "import cloudpickle").Run() == nil {
			return python
		}
	}
	return ""
}

// TestCertificate makes a certificate for the workers of a program. The certificate is its own
// authority.
func TestCertificate(t *testing.T) {
	said, err := ask(t, `{"id":1,"do":"certificate"}`, "END PRIVATE KEY")
	if err != nil || !strings.Contains(said, "BEGIN CERTIFICATE") || !strings.Contains(said, "END PRIVATE KEY") {
		t.Errorf("got %q (%v), want a certificate and its key", said, err)
	}
}

// TestPythonOfVerl runs verl on the module ray: GOLAUNCH_TEST_VERL is a Python with verl, whose
// packages are large, and without Ray.
func TestPythonOfVerl(t *testing.T) {
	t.Parallel()
	python := suite.Optional(t, "GOLAUNCH_TEST_VERL", "Python with verl")
	if out := runRay(t, python, "test_verl.py"); strings.Contains(out, "skipped") {
		t.Errorf("a test of verl was skipped:\n%s", out)
	}
}

// TestPythonRemote has a cluster of two nodes whose workers cannot use the controller's socket, as
// if they were on other machines.
func TestPythonRemote(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 0, 0)
	runPython(t, "python3", "TEST_COORDINATOR="+cluster.Coordinator, filepath.Join(tree, "tests", "test_far.py"), "TEST_TOKEN="+cluster.TokenFile)
}

// TestPythonOfGPUs uses GPUs of the driver that internal/host/gpu has for its tests.
func TestPythonOfGPUs(t *testing.T) {
	t.Parallel()
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, err := exec.Command("cc", "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", strings.TrimSpace(string(header)),
		"-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../../../../internal/host/gpu/testdata/nvml.c").CombinedOutput()
	if err != nil {
		t.Fatalf("build the fake driver: %v\n%s", err, out)
	}
	said := runPython(t, "python3", "LD_LIBRARY_PATH="+dir, filepath.Join(tree, "tests", "test_gpus.py"), "FAKE_NVML_HELD="+t.TempDir())
	if strings.Contains(said, "skipped") {
		t.Errorf("a test was skipped:\n%s", said)
	}
	if python := pythonOfRay(); python != "" { // TestPythonOfRay reports if there is none
		runTests(t, []string{python, filepath.Join(tree, "tests", "test_ray_gpus.py")}, "LD_LIBRARY_PATH="+dir, "PYTHONPATH="+abs(t, tree))
	}
}

// runRay runs tests of Ray's names: all tests of a file, or some of them. As root, the tests have a
// network of their own, since "auto" means any session of the machine.
func runRay(t *testing.T, python string, what ...string) string {
	t.Helper()
	command := append([]string{python, "-X", "faulthandler", filepath.Join(tree, "tests", what[0])}, what[1:]...)
	if os.Geteuid() == 0 {
		command = append([]string{"unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "-"}, command...)
	}
	return runTests(t, command, "RAY_ADDRESS=", "PYTHONPATH="+abs(t, tree))
}

// runPython runs a file of tests, with variables before and after it.
func runPython(t *testing.T, python, variable, file string, more ...string) string {
	t.Helper()
	return runTests(t, []string{python, "-X", "faulthandler", file}, append([]string{variable}, more...)...)
}

func runTests(t *testing.T, command []string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "p") //nolint:usetesting // short, for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	modules := filepath.Join(dir, "modules") // as in the wheel golaunch: without a module ray
	if err := errors.Join(os.Mkdir(modules, 0o700), os.Symlink(filepath.Join(abs(t, tree), "golaunch"), filepath.Join(modules, "golaunch"))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "GOLAUNCH_BINARY="+golaunch, "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1",
		"TMPDIR="+dir, "GOLAUNCH_COORDINATOR="), env...)
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// interpreters returns a CPython of each version, 3.9 to 3.14, the oldest first. The CPython in the
// PATH stands for its version.
func interpreters(t *testing.T) []string {
	t.Helper()
	candidates := []string{"python3"}
	for minor := 9; minor <= 14; minor++ {
		candidates = append(candidates, fmt.Sprintf("python3.%d", minor))
		more, _ := filepath.Glob(filepath.Join(suite.Home(), ".pyenv", "versions", fmt.Sprintf("3.%d.*", minor), "bin", "python"))
		candidates = append(candidates, more...)
	}
	const which = "import platform, sys; print(platform.python_implementation(), '%d.%02d' % sys.version_info[:2], sys.executable)"
	found := map[string]string{}
	for _, name := range candidates {
		out, err := exec.Command(name, "-c", which).Output()
		said := strings.Fields(string(out))
		if err == nil && len(said) == 3 && said[0] == "CPython" && said[1] >= "3.09" && found[said[1]] == "" {
			found[said[1]] = said[2] // the program of pyenv in the PATH is a script, which starts slowly
		}
	}
	if len(found) == 0 {
		t.Fatal("no python3 is here")
	}
	var all []string
	for _, version := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[version])
	}
	return all
}

// other is an interpreter of another version.
func other(all []string, i int) string {
	if len(all) < 2 {
		return ""
	}
	return all[(i+1)%len(all)]
}

// TestWhatIsNoProgram: standard input may be anything.
func TestWhatIsNoProgram(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                                      "cannot read the questions of the program",
		`{"id":1,"do":"x"}`:                          `this golaunch does not know \"x\"`,
		`{"id":1,"do":"reserve"}`:                    "this program has no cluster",
		`{"id":1,"do":"start"}`:                      "the reservation of this group has ended",
		`{"id":1,"do":"stop"}`:                       "this program has no cluster",
		`{"id":1,"do":"usage"}`:                      "this program has no cluster",
		`{"id":1,"do":"stacks"}`:                     "this program has no cluster",
		`{"id":1,"do":"release"}`:                    `"value":{}`,
		`{"id":1,"do":"open","with":{"local":7}}`:    "cannot read what the program asks",
		`{"id":1,"do":"open","with":{"local":[{}]}}`: "did not name its socket",
		`{"id":1,"do":"open","with":{"lease":0.5,"local":[{}],"socket":"` + filepath.Join(t.TempDir(), "x") + `"}}`: "at least 1s",
		strings.Repeat("x", 3<<20): "cannot read the questions of the program",
	} {
		said, err := ask(t, text, want)
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%.60s: %q (%v), want %q", text, said, err, want)
		}
	}
}

// ask starts the helper and sends it one line. It returns the helper's output up to the wanted
// text, or up to the end of the helper.
func ask(t *testing.T, text, want string) (string, error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that there can be a deadline
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	if err := ours.SetDeadline(time.Now().Add(testLimit)); err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	cmd := exec.CommandContext(t.Context(), golaunch, internalverbs.Controller)
	cmd.Stdin, cmd.Stderr = theirs, &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	_, _ = io.WriteString(ours, text+"\n") // the helper may end before it has read everything
	said := ""
	buf := make([]byte, 4096)
	for !strings.Contains(said, want) {
		n, err := ours.Read(buf)
		said += string(buf[:n])
		if err != nil {
			break
		}
	}
	ours.Close()
	if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "exit status 125") {
		return said, err
	}
	return said + words.String(), nil
}
