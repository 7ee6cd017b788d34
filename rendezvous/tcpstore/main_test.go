package tcpstore

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// serverMode makes the test binary serve a store on its own, as for a benchmark: client and server have open files of their own.
const serverMode = "TCPSTORE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverMode) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s, err := Serve(l, Options{Warn: func(err error) { fmt.Fprintln(os.Stderr, err) }})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Addr().Port())
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}

// otherRoot names a variable with the root of a Debian that has a newer python3-torch than the machine:
//
//	mmdebstrap --variant=essential --include=python3-torch sid ROOT
const otherRoot = "GOLAUNCH_TEST_TORCH"

// A torch is an installation of torch: in the machine's own root, or in another.
type torch struct{ name, root string }

// torches are those that this machine has.
func torches(t testing.TB) []torch {
	found := []torch{{name: "host"}}
	if exec.Command("/usr/bin/python3", "-c", "import torch").Run() != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("/usr/bin/python3 has no torch: install python3-torch")
		}
		found = nil
	}
	if root := os.Getenv(otherRoot); root != "" {
		found = append(found, torch{"root", root})
	}
	if len(found) == 0 {
		t.Skip("there is no torch: install python3-torch, or let " + otherRoot + " name a root that has it")
	}
	return found
}

// enter runs a command in another root, with a /proc that goes away with it.
const enter = `mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/env -i "$@"`

// python runs a script under torch, with nothing in its environment but PATH and what is given.
func (o torch) python(ctx context.Context, script string, env []string, args ...string) *exec.Cmd {
	argv := append([]string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "OMP_NUM_THREADS=1"}, env...)
	argv = append(append(argv, "/usr/bin/python3", "-u", "-c", script), args...)
	name := "/usr/bin/env"
	if argv = append([]string{"-i"}, argv...); o.root != "" {
		name = "unshare"
		argv = append([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, o.root}, argv[1:]...)
	}
	cmd := exec.CommandContext(ctx, name, argv...)
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

//go:embed testdata/server.py
var serverScript string

func (o torch) String() string {
	if o.name == "" {
		return "golaunch"
	}
	return "torch-" + o.name
}

// serve starts a store in a process of its own, torch's or, for none, this package's. It returns where it is, and its process group.
func (o torch) serve(t testing.TB) (netip.AddrPort, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverMode+"=1")
	if o.name != "" {
		cmd = o.python(t.Context(), serverScript, nil)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), cmd.Process.Pid
}
