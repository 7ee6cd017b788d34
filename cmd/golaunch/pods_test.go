package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// pods are nodes with the same view as containers of pods: a network, a host name, /etc, /dev and
// processes of their own, and no variables except the kubelet's and their own. A pod can resolve a
// name once the name is in its /etc/hosts, which replaces a name server.
type pods struct {
	t     *testing.T
	all   []*pod
	known string
}

type pod struct {
	t *testing.T
	nettest.Node
	host, dir string
	env       []string
}

// makePods makes one pod for each host name. Their addresses sort in another order than their
// names.
func makePods(t *testing.T, subdomain string, hosts ...string) *pods {
	t.Helper()
	ps := &pods{t: t}
	var addrs []string
	for i := range hosts {
		addrs = append(addrs, fmt.Sprintf("10.76.0.%d", 9+(i^1)))
	}
	for i, n := range nettest.Nodes(t, addrs...) {
		p := &pod{t: t, Node: n, host: hosts[i], dir: t.TempDir()}
		p.file("etc/nsswitch.conf", "hosts: files\n")
		p.file("termination-log", "")
		if err := os.Chmod(filepath.Join(p.dir, "termination-log"), 0o666); err != nil { // as the kubelet makes it
			t.Fatal(err)
		}
		p.file("container.sh", container)
		names := p.host
		if subdomain != "" {
			names = fmt.Sprintf("%s.%s.default.svc.cluster.local\t%[1]s", p.host, subdomain)
			ps.known += fmt.Sprintf("%v\t%s.%s.default.svc.cluster.local\t%[2]s.%[3]s.default\t%[2]s.%[3]s\t%[2]s\n", n.Addr, p.host, subdomain)
		}
		p.file("etc/hosts", fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%v\t%s\n", n.Addr, names))
		ps.all = append(ps.all, p)
	}
	return ps
}

// publish tells every pod the names of all pods.
func (ps *pods) publish() {
	ps.t.Helper()
	for _, p := range ps.all {
		p.file("etc/hosts", p.read("etc/hosts")+ps.known)
	}
}

func (p *pod) file(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) read(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// with gives variables to the pod, and removes variables without a value.
func (p *pod) with(vars ...string) *pod {
	for _, v := range vars {
		name, _, set := strings.Cut(v, "=")
		kept := []string{}
		for _, old := range p.env {
			if !strings.HasPrefix(old, name+"=") {
				kept = append(kept, old)
			}
		}
		if p.env = kept; set {
			p.env = append(p.env, v)
		}
	}
	return p
}

// container sets up a container in this process's own namespaces and becomes its first process,
// with the user and the restrictions of a securityContext that forbids root.
const container = `set -e
dir=$1 host=$2 program=$3
shift 3
mount -t proc proc /proc
hostname "$host"
mkdir -p "$dir/dev" "$dir/tmp"
mount -t tmpfs -o mode=755 dev "$dir/dev"
for device in null zero full random urandom; do
	: >"$dir/dev/$device"
	mount --bind /dev/$device "$dir/dev/$device"
done
mkdir -m 1777 "$dir/dev/shm"
ln -s /proc/self/fd "$dir/dev/fd"
: >"$dir/dev/termination-log"
mount --bind "$dir/termination-log" "$dir/dev/termination-log"
mount --rbind "$dir/dev" /dev
mount --bind "$dir/etc" /etc
mount -t tmpfs -o mode=1777 tmp "$dir/tmp"
: >"$dir/tmp/golaunch"
mount --bind "$program" "$dir/tmp/golaunch"
mount --rbind "$dir/tmp" /tmp
cd /
export TMPDIR=/tmp
exec setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all /tmp/golaunch "$@"`

// run starts golaunch as the first process of the pod's container.
func (p *pod) run(args ...string) *process {
	p.t.Helper()
	argv := p.Command(append([]string{"sh", filepath.Join(p.dir, "container.sh"), p.dir, p.host, golaunch(p.t)}, args...)...).Args
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "HOME=/", "HOSTNAME=" + p.host,
		"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_PORT=tcp://10.96.0.1:443",
	}, p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS,
	}
	return start(p.t, cmd)
}

// message checks the line that the container leaves behind.
func (p *pod) message(want string) {
	p.t.Helper()
	if got := p.read("termination-log"); got != want+"\n" {
		p.t.Errorf("the termination message of %s is\n%swant\n%s", p.host, got, want)
	}
}
