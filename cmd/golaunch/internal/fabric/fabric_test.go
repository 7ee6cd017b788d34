package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric/pairtests"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/testkit/nccltest"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// generous bounds waits that are long only if golaunch has a defect, and brief bounds waits that
// last because of a planted fault. A busy machine needs less time than either.
const (
	generous = 3 * time.Minute
	brief    = 15 * time.Second
)

// job is a check with a process for each node, all on this machine, and a store of golaunch.
type job struct {
	t     *testing.T
	store netip.AddrPort
	ranks []*exec.Cmd
	out   []bytes.Buffer
}

func start(t *testing.T, nodes int, o Options, env ...string) *job {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store, err := tcpstore.Serve(l, tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, store: l.Addr().(*net.TCPAddr).AddrPort(), out: make([]bytes.Buffer, nodes)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), generous)
	t.Cleanup(func() {
		cancel()
		for _, cmd := range j.ranks {
			_ = cmd.Wait() // ranks that the test has waited for return an error here
		}
		store.Close()
	})
	for i := range nodes {
		cmd := exec.CommandContext(ctx, golaunch, Command(o)[1:]...)
		cmd.Env = os.Environ()
		for _, v := range rankenv.Vars(rankenv.Facts{
			JobID: "check", Rank: i, WorldSize: nodes, LocalWorldSize: 1, NodeRank: i, Nodes: nodes, NodeName: fmt.Sprintf("n%d", i+1),
			MasterAddr: j.store.Addr().String(), MasterPort: int(j.store.Port()), StoreHosted: true,
		}) {
			cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		}
		cmd.Env = append(cmd.Env, env...)
		cmd.Stdout, cmd.Stderr = &j.out[i], t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, cmd)
	}
	return j
}

// report waits for these ranks, and reads their output.
func (j *job) report(ranks ...int) Report {
	j.t.Helper()
	var all bytes.Buffer
	for _, rank := range ranks {
		if err := j.ranks[rank].Wait(); err != nil {
			j.t.Fatalf("rank %d: %v", rank, err)
		}
		all.Write(j.out[rank].Bytes())
	}
	r, err := Read(&all)
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

// told returns the findings of a report, one a line, without remedies.
func told(r Report) string {
	var b strings.Builder
	for _, f := range r.Findings() {
		fmt.Fprintf(&b, "%s %s\n", f.Warnable.Code, f.Where())
	}
	return b.String()
}

func TestTCP(t *testing.T) {
	r := start(t, 3, Options{Simulated: true, Limit: generous / 2}).report(0, 1, 2)
	if !r.Led || r.Ill || r.Kind != TCP || len(r.Nodes) != 3 || r.Tests != 5 || r.Rounds != 3 || told(r) != "" {
		t.Errorf("%+v", r)
	}
	for _, n := range r.Nodes {
		if n.State != pairtests.Good || n.Inside.Latency <= 0 || n.Between.Latency <= 0 || n.Between.Bandwidth <= 0 {
			t.Errorf("%+v", n)
		}
	}
}

// TestOthersKnow: every node has the outcome, for its exit code.
func TestOthersKnow(t *testing.T) {
	dir := nccltest.Libraries(t)
	j := start(t, 2, Options{Library: dir + "/libnccl.so.2"}, "LD_LIBRARY_PATH="+dir, "FAKE_NCCL=n1=gpu")
	if r := j.report(1); r.Led || !r.Ill || len(r.Nodes) > 0 {
		t.Errorf("node 1 has %+v", r)
	}
	if r := j.report(0); !r.Led || !r.Ill {
		t.Errorf("node 0 has %+v", r)
	}
}

func TestNCCL(t *testing.T) {
	dir := nccltest.Libraries(t)
	text := filepath.Join(t.TempDir(), "libnccl.so.2")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a library ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		nodes                int
		library, fault, want string
	}{
		"well":                    {4, dir, "", ""},
		"alone":                   {1, dir, "", ""},
		"versions":                {3, dir, "n2=old", "nccl-skew nccl: 2 nodes 2.21.5; n2 2.20.3\n"},
		"no library":              {2, text, "", "fabric-nccl n[1-2]: GPU 0: load NCCL: " + text + ": invalid ELF header; "},
		"no GPU":                  {2, dir, "n2=gpu", "fabric-nccl n2: GPU 0: cuInit on GPU 0: CUDA_ERROR_NO_DEVICE (100)\n"},
		"hangs when it is loaded": {2, dir, "n2=load", "fabric-nccl n2: GPU 0: no answer within 15s: it was loading libnccl\n"},
		"crashes": {
			2, dir, "n2=crash",
			"fabric-node n2: GPU 0: its process died joining the communicator as rank 0 of 1: exit status 2: SIGABRT: abort\n",
		},
		"wrong sum": {2, dir, "n2=sum", "fabric-node n2: GPU 0: the sum is wrong: element 0 of an all-reduce over 1 ranks is 2 on GPU 0, not 1\n"},
		"no link": {
			4, dir, "n3=link", "fabric-nic n3: with n2: n3: GPU 0: ncclCommInitRankScalable: unhandled system error (2): " +
				"socketStartConnect: Connect to 10.0.0.9 failed\n",
		},
		"fails late": {4, dir, "n2=async", "fabric-nic n2: with n3: n2: GPU 0: ncclAllReduce: remote process exited or there was a network error (6)\n"},
		"hangs":      {4, dir, "n4=stuck", "fabric-nic n4: with n1: "},
		"one of two": {2, dir, "n2=link", "fabric-suspect n1 or n2: n2: GPU 0: ncclCommInitRankScalable: unhandled system error (2)"},
		"all":        {4, dir, "*=link", "fabric-suspect some of n[1-4]: "},
		"slow":       {4, dir, "n1=slow", "fabric-slow n1: with "},
	} {
		t.Run(name, func(t *testing.T) {
			library := filepath.Join(dir, "libnccl.so.2")
			if c.library == text {
				library = text
			}
			o := Options{Library: library, Limit: generous / 2, Simulated: c.fault != "n1=slow"}
			if strings.HasPrefix(name, "hangs") {
				t.Parallel()
				o.Limit = brief
			}
			r := start(t, c.nodes, o, "LD_LIBRARY_PATH="+dir, "FAKE_NCCL="+c.fault).report(0)
			got := told(r)
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || r.Ill != strings.Contains(got, "fabric-") && name != "slow" {
				t.Errorf("found %q, want %q; %+v", got, c.want, r)
			}
			for _, n := range r.Nodes {
				if n.State == pairtests.Good && (n.File != library || n.Inside.Latency <= 0 || c.nodes > 1 && n.Between.Bandwidth <= 0) {
					t.Errorf("%+v", n)
				}
			}
		})
	}
}

// TestSeveralGPUs: each GPU has a process of its own, two on each node.
func TestSeveralGPUs(t *testing.T) {
	dir := nccltest.Libraries(t)
	o := Options{Library: filepath.Join(dir, "libnccl.so.2"), Limit: generous / 2, Simulated: true}
	r := start(t, 2, o, "LD_LIBRARY_PATH="+dir, "LOCAL_WORLD_SIZE=2").report(0)
	if told(r) != "" || len(r.Nodes) != 2 || r.Nodes[1].Inside.Bandwidth <= 0 || r.Nodes[1].Between.Bandwidth <= 0 {
		t.Errorf("%s%+v", told(r), r)
	}
}

func TestCombine(t *testing.T) {
	well := report{Library: "2.21.5", Figures: Figures{time.Second, 5}}
	slower := report{Figures: Figures{time.Minute, 4}}
	ended, failed := report{Err: "GPU 3 failed: it was reducing", Killed: true}, report{Err: "no memory", Code: "fabric-nccl"}
	for want, reports := range map[string][]report{"": {well, slower}, "GPU 3: no memory": {well, slower, ended, failed}, "GPU 1: " + ended.Err: {well, ended}} {
		out := combine(reports, nil)
		if out.Err != want || out.Library != "2.21.5" || len(reports) != 2 && out.Code != "fabric-nccl" {
			t.Errorf("%+v of %+v", out, reports)
		}
		if want == "" && out.Figures != slower.Figures {
			t.Errorf("figures %v", out.Figures)
		}
	}
}

// TestPythonsLibrary: the library of Python is in the active environment.
func TestPythonsLibrary(t *testing.T) {
	dir, venv := nccltest.Libraries(t), t.TempDir()
	library := filepath.Join(venv, "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2")
	if err := os.MkdirAll(filepath.Dir(library), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "libnccl.so.2"), library); err != nil {
		t.Fatal(err)
	}
	r := start(t, 1, Options{}, "LD_LIBRARY_PATH="+dir, "VIRTUAL_ENV="+venv, "GOLAUNCH_GPU_UUID=GPU-0").report(0)
	if r.Kind != NCCL || told(r) != "" || r.Nodes[0].File != library {
		t.Errorf("%+v", r)
	}
}

// TestSilentNode stops a node after its hello.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	j := start(t, 4, Options{Simulated: true, Limit: brief})
	store, err := tcpstore.Dial(t.Context(), j.store, generous)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Get(t.Context(), helloKey(2)); err != nil {
		t.Fatal(err)
	}
	if err := j.ranks[2].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := j.ranks[0].Wait(); err == nil || j.ranks[0].ProcessState.ExitCode() != 1 {
		t.Errorf("rank 0 leaves the silent one to itself: %v", err)
	}
	r, err := Read(&j.out[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := told(r), "fabric-silent n3: it has not answered within 17s\n"; got != want || !r.Ill {
		t.Errorf("found %q, want %q", got, want)
	}
	if r := j.report(1, 3); !r.Ill {
		t.Error("the others do not know")
	}
}

// TestStrangers: strangers connect to a node that waits for its partner.
func TestStrangers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	here := node{addr: netip.MustParseAddr("127.0.0.1")}
	s, err := here.listen(ctx, ports.Range{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		_, err := s.serve(ctx)
		served <- err
	}()
	for _, greeting := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(greeting)); err != nil {
			t.Fatal(err)
		}
		if greeting == "" {
			conn.Close()
			continue
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a stranger has an answer")
		}
	}
	if f, err := here.dial(ctx, "n2", s.meeting(), 1); err != nil || f.Latency <= 0 || f.Bandwidth <= 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestTheOtherNodeNeverComes: both ends of a test have a limit.
func TestTheOtherNodeNeverComes(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no answer in time"))
	defer cancel()
	here := node{addr: netip.MustParseAddr("127.0.0.1")}
	s, err := here.listen(ctx, ports.Range{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.serve(ctx); err == nil || !strings.HasSuffix(err.Error(), "no answer in time") {
		t.Errorf("serving: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel = context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no answer in time"))
	defer cancel()
	m := meeting{Addr: silent.Addr().(*net.TCPAddr).AddrPort(), Token: make([]byte, 16)}
	if _, err := here.dial(ctx, "n2", m, 1); err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("dialling: %v", err)
	}
}

func TestRead(t *testing.T) {
	for _, output := range []string{"", "hello\n", `{"Node":{"Name":"n1"}}`, `{"End":{}} and more`} {
		if r, err := Read(strings.NewReader(output)); !errors.Is(err, ErrNoReport) {
			t.Errorf("%q is %+v, %v", output, r, err)
		}
	}
}
