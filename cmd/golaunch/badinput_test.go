package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

const secret = "GOLAUNCH_TOKEN=0123456789abcdef0123456789abcdef"

// local returns golaunch on this machine, with a rendezvous at 127.0.0.1.
func local(t *testing.T, port int, args ...string) *process {
	t.Helper()
	cmd := exec.Command(golaunch(t), append([]string{"--rendezvous", fmt.Sprintf("127.0.0.1:%d", port), "--nodes", "2"}, args...)...)
	return start(t, cmd, secret)
}

// listen returns a listener and its port.
func listen(t *testing.T) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// TestThePortIsTaken: the port is taken by a program that sends nothing, or by one that sends
// first.
func TestThePortIsTaken(t *testing.T) {
	t.Parallel()
	_, silent := listen(t)
	l, loud := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
			conn.Close()
		}
	}()
	self, err := os.ReadFile("/proc/self/comm") // golaunch.test, or the name given to go test -c
	must(t, err)
	for _, port := range []int{loud, silent} {
		want := fmt.Sprintf(`(?m)^golaunch: port %d of 127.0.0.1 is in use by pid [0-9]+ \(%s\), which is no golaunch coordinator, `,
			port, regexp.QuoteMeta(strings.TrimSpace(string(self)))) // a child before its exec also has the socket
		code, text := local(t, port, "--", "true").wait()
		if code != 125 || !regexp.MustCompile(want).MatchString(text) || strings.Count(text, "\n") != 1 {
			t.Errorf("exit code %d, want 125 and %s", code, want)
		}
	}
}

// TestStrangersAtTheDoor: strangers connect to a coordinator that waits for its second node, and
// the second node still joins.
func TestStrangersAtTheDoor(t *testing.T) {
	t.Parallel()
	port := nettest.Port(t)
	a := local(t, port, "--name", "a", "--", "true")
	a.line(`waiting for 1 of 2 nodes; here: a \(127.0.0.1\)`)
	at := fmt.Sprintf("127.0.0.1:%d", port)
	for _, words := range []string{strings.Repeat("\x00\xff\x16\x03", 4096), "GET / HTTP/1.1\r\n\r\n", "", "\x16\x03\x01\x02"} {
		for range 50 {
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			io.WriteString(conn, words) // may be refused already
		}
	}
	a.line("warning: the peer at 127.0.0.1:[0-9]+ speaks no TLS; is it golaunch")
	local(t, port, "--name", "b", "--", "true").ends(0)
	a.ends(0)
}

// TestNodesMeetAtLocalhost: a node that waits at an address of its own machine alone says so.
// torchrun has such an address unless the user gives another one.
func TestNodesMeetAtLocalhost(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "torchrun", "--nnodes", "2", "--master-port", fmt.Sprint(nettest.Port(t)), "--no-python", "true"), secret)
	p.line("no other node has come yet: only processes of this machine reach 127.0.0.1; .* --master-addr")
	p.signal(syscall.SIGINT)
	p.ends(130)
}

// TestAnotherVersionEndsTheWait: a node is refused if the others do not understand its golaunch.
// The job then ends, since it does not get its nodes.
func TestAnotherVersionEndsTheWait(t *testing.T) {
	t.Parallel()
	port := nettest.Port(t)
	a := local(t, port, "--name", "a", "--", "true")
	a.line(`waiting for 1 of 2 nodes; here: a \(127.0.0.1\)`)
	otherVersion(t, fmt.Sprintf("127.0.0.1:%d", port))
	a.ends(2, "node b was refused, and without it 2 nodes cannot come together: golaunch v9.9.9 here and")
}

// otherVersion says hello with a protocol of the future.
func otherVersion(t *testing.T, at string) {
	_, text, _ := strings.Cut(secret, "=")
	token, err := mtls.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	tls := mtls.Client(token, mtls.Identity{Node: "b"})
	conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(credentials.NewTLS(tls)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := pb.NewRendezvousClient(conn).Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hello := &pb.Hello{Protocol: 1 << 20, Version: "v9.9.9", Node: &pb.Node{Name: "b", Addr: "127.0.0.2"}}
	if err := stream.Send(&pb.FromAgent{Body: &pb.FromAgent_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if s := grpcstatus.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), "golaunch v9.9.9 here and") ||
		!strings.Contains(s.Message(), "install the same on both") {
		t.Errorf("%v", err)
	}
}

// TestNoCoordinatorComes: nodes wait for a coordinator: one node until it must stop, one for its
// limit, and one until the event.
func TestNoCoordinatorComes(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	const waits = "warning: node b keeps trying: cannot reach the coordinator at 10.77.0.2:29400: .*connection refused"
	stopped := start(t, join(t, nodes[1], "b", token, "--nodes", "2", "--", "true"))
	stopped.line(waits)
	stopped.signal(syscall.SIGINT)
	stopped.ends(130, "node b gave up joining (got SIGINT): cannot reach the coordinator at 10.77.0.2:29400: ")
	limited := start(t, join(t, nodes[1], "b", token, "--placement-timeout", "5s", "--nodes", "2", "--", "true"))
	limited.ends(124, "node b gave up joining (no coordinator was found in time; see --placement-timeout): cannot reach the coordinator")
	b := start(t, join(t, nodes[1], "b", token, "--placement-timeout", "1m", "--nodes", "2", "--", "true"))
	b.line(waits)
	a := start(t, join(t, nodes[0], "a", token, "--placement-timeout", "1m", "--nodes", "2", "--", "true"))
	a.ends(0)
	b.ends(0)
	alone := start(t, join(t, nodes[0], "a", token, "--placement-timeout", "5s", "--nodes", "2", "--", "true"))
	alone.ends(124, "job timed out: waiting for 1 of 2 nodes; here: a (10.77.0.2)")
	if _, text := alone.wait(); strings.Contains(text, "logs  ") {
		t.Error("it names logs that are gone, for nothing has run")
	}
}

// TestANodeLeaves: a node must leave while the job runs. Its ranks get their grace period, and the
// job ends or goes on without it.
func TestANodeLeaves(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{"--nodes", "2", "--max-restarts", "0", "--", "sh", "-c", "trap 'echo saved $RANK; exit 0' TERM; echo up $RANK; sleep 1000 & wait"}
	a, b := both(t, nodes, token, job...)
	a.line("up 0")
	b.line("up 1")
	b.signal(syscall.SIGTERM)
	b.ends(143, "saved 1", "this node has left: got SIGTERM")
	a.ends(125, "b leaves: got SIGTERM; 0 of 0 restarts used", "saved 0")
}

// TestTheHostsOwnName: on Debian, the address of the host's own name is 127.0.1.1, which no other
// node can reach. golaunch listens at an address that the others find.
func TestTheHostsOwnName(t *testing.T) {
	t.Parallel()
	nodes := nettest.Nodes(t, "10.83.0.2", "10.83.0.3")
	run := func(node nettest.Node, host, addr string, args ...string) *process {
		hosts := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+addr+" own-name\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		argv := []string{"unshare", "--mount", "--uts", "sh", "-c", `mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"`, hosts, host}
		return start(t, node.Command(append(append(argv, golaunch(t)), args...)...), secret)
	}
	for _, command := range [][]string{
		{"--nodes", "3", "--rendezvous", "own-name:29400", "--placement-timeout", "1m", "--job-id", "j", "--log-dir", t.TempDir(), "--", "sh", "-c", told},
		{"torchrun", "--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", "own-name:29400", "--no-python", "sh", "-c", told},
	} {
		first := run(nodes[0], "own-name", "127.0.1.1", command...)
		other := run(nodes[1], "n2", "10.83.0.2", command...)
		first.line("own-name is 127.0.1.1 on this machine .*; the others find it at 10.83.0.2,")
		if command[0] != "torchrun" { // nodes of torchrun need no name
			command = append([]string{"--name=twin"}, command...)
		}
		for _, p := range []*process{first, other, run(nodes[0], "own-name", "127.0.1.1", command...)} {
			p.ends(0, "of 3 local 0")
		}
	}
	run(nodes[0], "own-name", "127.0.1.1", "coordinator", "--listen", "own-name:29400", "--token-file", tokenFile(t)).line(`10\.83\.0\.2:29400`)
	run(nodes[0], "own-name", "127.0.1.1", "--nodes", "1", "--rendezvous", "own-name:29400", "--", "true").ends(0)
	run(nodes[0], "n9", "127.0.1.1", "--nodes", "2", "--rendezvous", "own-name:29400", "--", "true").ends(125,
		"rendezvous host own-name is 127.0.1.1 on this machine (see /etc/hosts), which no other node can reach; use its address")
}

// TestLogsOfAnotherUser: golaunch does not write to logs of another user.
func TestLogsOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "golaunch")
	logs := filepath.Join(dir, "logs")
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o755), os.Link(golaunch(t), bin), os.Mkdir(logs, 0o755), os.Mkdir(filepath.Join(logs, "mine"), 0o777),
		os.Chmod(filepath.Join(logs, "mine"), 0o777),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{"mine": "belongs to uid 0, not to uid 65534", "new": "permission denied"} {
		cmd := exec.Command(bin, "--log-dir", logs, "--job-id", id, "--", "true")
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		start(t, cmd).ends(125, want, "log directory of job "+id+" in "+logs, "choose another with --log-dir")
	}
}

// TestTheDiskIsFull: the disk of the logs is full, and the ranks go on.
func TestTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	p := start(t, exec.Command(golaunch(t), "--log-dir", dir, "--job-id", "a", "--procs-per-node", "2", "--", "sh", "-c",
		"[ $RANK = 1 ] || seq 1 100000; echo rank $RANK ends"))
	p.ends(0, "[r0 ", "] 100000\n", "rank 0 ends", "rank 1 ends",
		"warning: write the stdout log of rank 0 on ", "("+dir+"/a/attempt-0/rank-0.stdout.log)", "no space left on device")
}

// TestALineWithoutEnd: a line of half a gigabyte costs neither memory nor time of the other ranks.
func TestALineWithoutEnd(t *testing.T) {
	t.Parallel()
	quiet := `exec "$0" "$@" >/dev/null`
	p := start(t, exec.Command("sh", "-c", quiet, golaunch(t), "--procs-per-node", "2", "--log-limit", "1000000", "--", "sh", "-c",
		`trap 'exit 0' USR1; if [ $RANK = 0 ]; then head -c 512M /dev/zero; echo written >&2; else echo up >&2; fi; sleep 1000 & wait`))
	p.line("up")
	p.line("written")
	peak := vmHWM(t, p.cmd.Process.Pid)
	t.Logf("peak of golaunch: %d kB", peak)
	if peak > 256<<10 { // 54 MiB is usual, and 134 MiB with the race detector's shadow; it is more if the garbage collector gets little time
		t.Errorf("golaunch used %d kB, want 262144 at most", peak)
	}
	p.signal(syscall.SIGUSR1)
	p.ends(0)
}

// vmHWM is the largest resident size of a process in kilobytes (proc_pid_status(5)).
func vmHWM(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", text)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// TestOutputWithoutReaders: golaunch's stdout, or either of its outputs, is a full or a closed
// pipe. golaunch still returns the job's own exit code.
func TestOutputWithoutReaders(t *testing.T) {
	t.Parallel()
	const talk = `echo "{\"rank\": $RANK}"; seq 1 200000; echo rank $RANK ends >&2; exit `
	for _, c := range []struct {
		name string
		code int
		to   string
		want string
	}{
		{"stuck", 3, ">&3", "show the output on stdout: its reader does not read"},
		{"stuck", 3, ">&3 2>&3", ""},
		{"stuck", 0, ">&3 2>&3", ""},
		{"closed", 3, ">&3", "show the output on stdout: broken pipe"},
		{"closed", 0, ">&3", "show the output on stdout: broken pipe"},
	} {
		t.Run(fmt.Sprint(c.name, c.code, c.to), func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if c.name == "closed" {
				r.Close()
			}
			cmd := exec.Command("sh", "-c", `exec "$0" "$@" `+c.to, golaunch(t), "--procs-per-node", "2", "--max-restarts", "0",
				"--", "sh", "-c", talk+strconv.Itoa(c.code))
			cmd.ExtraFiles = []*os.File{w}
			p := start(t, cmd)
			w.Close()
			p.ends(c.code, c.want)
		})
	}
	both := exec.Command("bash", "-c", `"$0" "$@" 2>&1 | head -n 1; exit ${PIPESTATUS[0]}`, golaunch(t), "--procs-per-node", "2",
		"--max-restarts", "0", "--", "sh", "-c", talk+"3")
	start(t, both).ends(3)
}

// TestManyLaunches: ranks end at once, and each exit must be reported.
func TestManyLaunches(t *testing.T) {
	for i := range 50 {
		if out, err := exec.Command(golaunch(t), "--procs-per-node", "32", "--max-restarts", "0", "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("launch %d: %v\n%s", i, err, out)
		}
	}
}
