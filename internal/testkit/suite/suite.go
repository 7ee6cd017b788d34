// Package suite is what the tests of several packages have in common: where they run, which
// golaunch they start, and how much they try. It is for tests, on Linux.
package suite

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// All says that everything is tried, as make test-all has it: golaunch is built with the race
// detector, each planted bug meets every world until one finds it, and torchrun itself runs.
// Otherwise the tests use what such a run has left in testdata.
func All() bool { return os.Getenv("GOLAUNCH_TEST_ALL") != "" }

// Main runs the tests of a package [Apart].
func Main(m *testing.M) {
	done := Apart()
	code := m.Run()
	done()
	os.Exit(code)
}

// MainWith runs the tests of a package [Apart], and builds [Golaunch] for them, at *path.
func MainWith(m *testing.M, path *string) {
	done := Apart()
	dir, err := os.MkdirTemp("", "bin")
	if err == nil {
		err = Golaunch(dir)
	}
	if err == nil {
		err = os.Setenv("GORACE", "atexit_sleep_ms=0") // each process would wait for a second at its end, for races that it could still report
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	*path = filepath.Join(dir, "golaunch")
	code := m.Run()
	done()
	os.Exit(code)
}

const (
	// apart is in the environment of a test binary that is apart, and of all that it starts.
	apart = "GOLAUNCH_TEST_APART"
	// home is the user's own home directory then.
	home = "GOLAUNCH_TEST_HOME"
)

// Apart has the tests find nothing that they did not start: it gives this process an environment, a
// HOME and a TMPDIR of its own, and as root a network of its own too, with its ports and abstract
// sockets, a /run/netns, and golaunch's records of supervisors. TestMain calls it first, and what it
// returns last. In a process that such tests have started it does nothing.
//
// The program starts again for that, in the same process: only so do all of its threads get there.
func Apart() (done func()) {
	if os.Getenv(apart) != "" {
		if os.Getenv(apart) != fmt.Sprint(os.Getpid()) {
			return func() {}
		}
		attend()
		dir := os.Getenv("TMPDIR")
		return func() { _ = os.RemoveAll(dir) } // what is left is in a directory of temporary files
	}
	err := enter()
	fmt.Fprintln(os.Stderr, "cannot run the tests apart from all else on this machine:", err)
	os.Exit(1)
	panic("not reached")
}

// attend lets what the tests start be stopped by signals that this process was started to ignore,
// as nohup and a shell's & have it.
func attend() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// enter returns only when it fails.
func enter() error {
	env, err := environment()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if os.Geteuid() == 0 {
		switch err := unshare(); {
		case errors.Is(err, unix.EPERM) && os.Getenv("CI") == "":
			fmt.Fprintln(os.Stderr, "the tests share the network of this container, which may make no other:", err)
		case err != nil:
			return err
		}
	}
	self, err := os.Executable() // whose name ps and golaunch show
	if err != nil {
		return err
	}
	return os.NewSyscallError("execve", syscall.Exec(self, os.Args, env))
}

// unshare moves this thread.
func unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount --make-rprivate /", err)
	}
	// By the records in the second, golaunch ends what dead supervisors have left, and removes their
	// cgroups.
	for dir, mode := range map[string]string{"/run/netns": "755", fmt.Sprintf("/tmp/golaunch-%d", os.Getuid()): "700"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("own", dir, "tmpfs", 0, "mode="+mode); err != nil {
			return os.NewSyscallError("mount "+dir, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return errors.Join(os.NewSyscallError("ip link set lo up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)), unix.Close(fd))
}

// kept are variables that say how this machine works, by their beginnings. All others say where
// this process runs, and who asked for what: a scheduler's, a launcher's, golaunch's own.
var kept = []string{
	"PATH=", "LANG=", "LC_", "TZ=", "TERM=", "USER=", "LOGNAME=", "SHELL=", "CI=", "LD_LIBRARY_PATH=",
	"GO", "CGO_", "CC=", "CXX=", "GIT_", "PYTHON", "http_proxy=", "https_proxy=", "no_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY=",
}

func environment() ([]string, error) {
	dir, err := temporary()
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "home")
	if err := os.Mkdir(own, 0o700); err != nil {
		return nil, err
	}
	var env []string
	for _, v := range os.Environ() {
		ours := strings.HasPrefix(v, "GOLAUNCH_") && !strings.HasPrefix(v, "GOLAUNCH_TEST_")
		for _, k := range kept {
			if strings.HasPrefix(v, k) && !ours {
				env = append(env, v)
				break
			}
		}
	}
	user := os.Getenv("HOME")
	env = append(env, "HOME="+own, "TMPDIR="+dir, home+"="+user, fmt.Sprintf("%s=%d", apart, os.Getpid()),
		"PYTHONUSERBASE="+cmp.Or(os.Getenv("PYTHONUSERBASE"), filepath.Join(user, ".local")))
	// What Go keeps in the user's home stays there.
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	at := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	return append(env, "GOCACHE="+at[0], "GOMODCACHE="+at[1], "GOPATH="+at[2]), nil
}

// temporary makes a directory whose name is as short as can be: a socket's path has 107 bytes, and
// a test's own directory takes most of them.
func temporary() (string, error) {
	for {
		dir := filepath.Join(os.TempDir(), strconv.FormatUint(rand.Uint64N(36*36*36*36), 36))
		err := os.Mkdir(dir, 0o755) //nolint:gosec // other users reach what is theirs in it
		if !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// Home is the home directory of the user who runs the tests.
func Home() string { return cmp.Or(os.Getenv(home), os.Getenv("HOME")) }

// Golaunch builds golaunch into a directory, with the name torchrun too: with the race detector for
// [All], otherwise without it, since the processes that tests start then take a third of the time.
func Golaunch(dir string) error {
	args := []string{"build", "-buildvcs=false", "-ldflags=-w", "-o", filepath.Join(dir, "golaunch")}
	if All() {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/golaunch/golaunch/cmd/golaunch")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build golaunch for the tests: %w\n%s", err, out)
	}
	return os.Link(filepath.Join(dir, "golaunch"), filepath.Join(dir, "torchrun"))
}
