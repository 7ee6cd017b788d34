package tcpstore

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// otherRoot names a variable with the root of a Debian that has a newer python3-torch than the
// machine:
//
//	mmdebstrap --variant=essential --include=python3-torch sid ROOT
const otherRoot = "GOLAUNCH_TEST_TORCH"

// patience bounds torch's work in a test: its import alone takes seconds on a busy machine.
const patience = 2 * time.Minute

// otherPython names a variable with a Python interpreter that has another torch, such as the torch
// of PyPI, which has libuv.
const otherPython = "GOLAUNCH_TEST_PYTHON"

// uvPython names a variable with a Python interpreter whose torch has libuv, for comparison in
// benchmarks. Debian's torch lacks libuv.
const uvPython = "GOLAUNCH_BENCH_TORCH"

// A torch is an installation of torch: in the machine's own root, in another root, or with an
// interpreter of its own and with libuv. The zero torch is this package.
type torch struct{ version, root, interpreter string }

func (o torch) String() string {
	switch {
	case o.version == "":
		return "golaunch"
	case o.interpreter != "":
		return "torch-" + o.version + "-libuv"
	}
	return "torch-" + o.version
}

const versionScript = `import importlib.metadata as m; print(m.version("torch"))`

// torches returns this machine's installations of torch. If the variable CI is "true", the machine
// must have both kinds.
func torches(t testing.TB) (found []torch) {
	t.Helper()
	all := []torch{{}}
	if root := os.Getenv(otherRoot); root != "" {
		all = append(all, torch{root: root})
	}
	if python := os.Getenv(otherPython); python != "" {
		all = append(all, torch{interpreter: python})
	}
	for _, o := range all {
		out, err := o.python(t.Context(), versionScript).Output()
		if err == nil {
			o.version, _, _ = strings.Cut(string(bytes.TrimSpace(out)), "+")
			found = append(found, o)
		} else if o != (torch{}) {
			t.Fatalf("there is no torch at %s%s, which %s or %s names: %v", o.root, o.interpreter, otherRoot, otherPython, err)
		}
	}
	if len(found) < 2 && os.Getenv("CI") == "true" {
		t.Fatalf("only %v: install python3-torch, and let %s name a root that has a newer one", found, otherRoot)
	}
	return found
}

// enter runs a command in another root, with a /proc that ends with the command. Torch looks up the
// name of each client, which does not exist in that root. Without name servers the look-up fails at
// once.
const enter = `mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/etc/resolv.conf" &&
	exec chroot "$0" /usr/bin/env -i "$@"`

// nameless runs a command of this root without name servers, because torch looks up the names of
// its clients.
const nameless = `mount --bind /dev/null /etc/resolv.conf && exec /usr/bin/env -i "$0" "$@"`

// python runs a script with only the environment that the script needs. Its children end with the
// script.
func (o torch) python(ctx context.Context, script string, args ...string) *exec.Cmd {
	argv := append([]string{
		"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "OMP_NUM_THREADS=1", cmp.Or(o.interpreter, "/usr/bin/python3"), "-u", "-c", script,
	}, args...)
	name := "/usr/bin/env"
	switch {
	case o.interpreter != "":
		argv = append([]string{"--mount", "sh", "-c", nameless}, argv...)
		name = "unshare"
	case o.root == "":
		argv = append([]string{"-i"}, argv...)
	default:
		name = "unshare"
		argv = append([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, o.root}, argv...)
	}
	cmd := exec.CommandContext(ctx, name, argv...)
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

//go:embed testdata/server.py
var serverScript string

// serve starts a store, torch's or this package's, in a new process. It returns the store's address
// and process group.
func (o torch) serve(t testing.TB) (netip.AddrPort, int) {
	t.Helper()
	return o.serveAs(t, "store")
}

// serveAs is like serve. In this package's own server, it uses the given serverMode.
func (o torch) serveAs(t testing.TB, mode string) (netip.AddrPort, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverMode+"="+mode)
	if o.version != "" {
		cmd = o.python(t.Context(), serverScript, map[bool]string{true: "libuv"}[o.interpreter != ""])
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	in, out := pipetest.Start(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	var port uint16
	_, err := fmt.Fscan(out, &port)
	ok(t, err)
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), cmd.Process.Pid
}

// withTorches runs a script under each torch. The script gets stores that this process serves, each
// with the given number of proxies.
func withTorches(t *testing.T, script string, proxies []int, args ...string) {
	found := torches(t)
	if len(found) == 0 {
		suite.Missing(t, "there is no torch: install python3-torch, or let %s name a root that has it", otherRoot)
	}
	for _, o := range found {
		t.Run(o.String(), func(t *testing.T) {
			args := args
			for _, n := range proxies {
				s := serveHere(t, Options{Warn: func(err error) { t.Log(err) }})
				ports := fmt.Sprint(s.Addr().Port())
				for range n {
					ports += fmt.Sprintf(",%d", proxyHere(t, s).Addr().Port())
				}
				args = append(args, ports)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := o.python(ctx, script, args...).CombinedOutput()
			if err != nil || !bytes.HasSuffix(out, []byte("ok\n")) {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

//go:embed testdata/suite.py
var everyCall string

// TestTorchClients uses the store itself, and then two proxies of another store.
func TestTorchClients(t *testing.T) { withTorches(t, everyCall, []int{0, 2}) }

//go:embed testdata/gloo.py
var gloo string

// TestTorchGroups uses the store itself in the first attempt. In the second it also uses proxies of
// another store.
func TestTorchGroups(t *testing.T) { withTorches(t, gloo, []int{0, 2}, "4") }
