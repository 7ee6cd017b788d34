// Package suite has functions that the tests of several packages share: they determine where tests
// run, which golaunch they start, and how much they try. It is for tests, on Linux.
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

// All reports whether everything is tried, as by make test-all: golaunch is built with the race
// detector, each planted bug meets every world until one finds it, and torchrun itself runs.
// Otherwise the tests use the records of such a run in testdata.
func All() bool { return os.Getenv("GOLAUNCH_TEST_ALL") != "" }

// Main calls [Apart] and runs the tests of a package.
func Main(m *testing.M) {
	done := Apart()
	code := m.Run()
	done()
	os.Exit(code)
}

// MainWith does what Main does, and builds [Golaunch] for the tests, at *path.
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
	// apart names a variable in the environment of a test binary that is [Apart], and of all
	// processes that it starts.
	apart = "GOLAUNCH_TEST_APART"
	// home names the variable that then has the user's own home directory.
	home = "GOLAUNCH_TEST_HOME"
)

// Apart makes the tests find nothing that they have not started: it gives this process an
// environment, a HOME and a TMPDIR of its own. As root, the process also gets a network of its own,
// with its ports and abstract sockets, a /run/netns, and golaunch's records of supervisors.
// TestMain calls Apart first, and the returned function last. In a process that such tests have
// started, Apart does nothing.
//
// For this, the program starts again in the same process. There is no other way to move all of its
// threads.
func Apart() (done func()) {
	if os.Getenv(apart) != "" {
		if os.Getenv(apart) != fmt.Sprint(os.Getpid()) {
			return func() {}
		}
		attend()
		dir := os.Getenv("TMPDIR")
		return func() { _ = os.RemoveAll(dir) } // leftover files are in a directory of temporary files
	}
	err := enter()
	fmt.Fprintln(os.Stderr, "cannot run the tests apart from all else on this machine:", err)
	os.Exit(1)
	panic("not reached")
}

// attend makes processes that the tests start react to signals that this process was started to
// ignore, as by nohup or the & of a shell.
func attend() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// enter returns only if it fails.
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
	self, err := os.Executable() // ps and golaunch show its name
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
	// The second directory has the records by which golaunch ends the processes that dead
	// supervisors have left, and removes their cgroups.
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

// kept are the beginnings of the names of variables that say how this machine works. All other
// variables describe where this process runs and the requests of its callers: variables of a
// scheduler, of a launcher, or golaunch's own.
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
	// Go's files in the user's home stay there.
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

// Golaunch builds golaunch into a directory, with the name torchrun too. For [All], it has the race
// detector. Otherwise it does not, since the processes that tests start then take a third of the
// time.
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
