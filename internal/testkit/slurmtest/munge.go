package slurmtest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// Munge runs a munged without a Slurm until the end of the test, for all users and nodes. It
// returns a slurm.conf (SLURM_CONF) with the socket of munged. Where munge is not installed the
// test is skipped, or fails if CI=true.
func Munge(t testing.TB) (conf string) {
	t.Helper()
	if _, err := exec.LookPath("munged"); err != nil {
		suite.Missing(t, "there is no munge: apt-get install munge")
	}
	dir, err := os.MkdirTemp("/tmp", "munge-") //nolint:usetesting // short, and within everyone's reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.WriteFile(at("key"), []byte(strings.Repeat("key!", 32)), 0o600),
		os.WriteFile(at("slurm.conf"), []byte("AuthInfo=socket="+at("socket")+"\n"), 0o644), //nolint:gosec // everyone reads it
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "munged", "--foreground", "--socket="+at("socket"), "--key-file="+at("key"), "--log-file="+at("log"),
		"--pid-file="+at("pid"), "--seed-file="+at("seed"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	t.Cleanup(func() { <-ended }) // munged is killed with the test's context
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the parent of Pdeathsig is a thread
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", at("socket"))
		if err == nil {
			conn.Close()
			return at("slurm.conf")
		}
		if time.Now().After(limit) {
			t.Fatalf("munged does not listen: %v", err)
		}
	}
}
