package failurebundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/testkit/suite"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// unpack reads an archive back: the index, and all files by name.
func unpack(t *testing.T, dir *safefile.Root, name string) (index, map[string]string) {
	t.Helper()
	f, err := dir.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	r := tar.NewReader(z)
	files := map[string]string{}
	for first := true; ; first = false {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if first != (h.Name == "index.json") {
			t.Errorf("%s: the index comes first", h.Name)
		}
		text, err := io.ReadAll(r)
		must(t, err)
		files[h.Name] = string(text)
	}
	var i index
	must(t, json.Unmarshal([]byte(files["index.json"]), &i))
	for _, e := range i.Entries {
		if e.Size != len(files[e.Name]) || e.Size == 0 && e.Missing == "" || e.From == "" {
			t.Errorf("%s has %d bytes; the index says %+v", e.Name, len(files[e.Name]), e)
		}
	}
	return i, files
}

func missing(i index, name string) string {
	for _, e := range i.Entries {
		if e.Name == name {
			return e.Missing
		}
	}
	return "no such entry"
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func root(t *testing.T) *safefile.Root {
	t.Helper()
	dir, err := safefile.OpenRoot(t.TempDir(), nil)
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	return dir
}

// start starts a process that prints a line when it is ready.
func start(t testing.TB, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return cmd.Process.Pid
}

// stopped returns a process that was stopped.
func stopped(t *testing.T) int {
	pid := start(t, "sh", "-c", "echo ready; kill -STOP $$")
	var info unix.Siginfo
	must(t, unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil))
	return pid
}

// gone returns the number of a process that has ended.
func gone(t *testing.T) int {
	cmd := exec.Command("true")
	must(t, cmd.Run())
	return cmd.Process.Pid
}

// patient gathers with all the time that a loaded machine may need.
func (b *Bundle) patient(t *testing.T, sources []source) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.gather(ctx, sources)
}

// asleep waits until a process sleeps.
func asleep(t *testing.T, pid int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		if strings.Contains(string(text), "State:\tS") {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("process %d does not sleep: %s", pid, text)
		}
	}
}

func TestRanks(t *testing.T) {
	dir := root(t)
	sleeper, still := start(t, "python3", "-c", "import time; print('ready', flush=True); time.sleep(1000)"), stopped(t)
	asleep(t, sleeper)
	b := New(Title{Job: "j", Node: "n1", Attempt: 3, Time: time.Now(), Why: "crash"})
	ranks := []Rank{{Number: 4, PIDs: []int{sleeper, gone(t)}}, {Number: 5, PIDs: []int{still}}, {Number: 6}}
	for _, r := range ranks {
		for name, read := range map[string]func(Rank) func(context.Context) ([]byte, error){"processes": processes, "libraries": libraries} {
			b.patient(t, []source{{name: fmt.Sprintf("rank-%d/%s", r.Number, name), from: "/proc", read: read(r)}})
		}
	}
	name, err := b.Write(dir)
	must(t, err)
	if name != "bundle-n1-attempt-3.tar.gz" {
		t.Error(name)
	}
	i, files := unpack(t, dir, name)
	if i.Format != jsonout.Version || i.Job != "j" || i.Attempt != 3 || i.Why != "crash" {
		t.Errorf("the index says %+v", i.Title)
	}
	for name, want := range map[string]string{
		"rank-4/processes": "State:\tS (sleeping)", "rank-4/libraries": "/libc", "rank-5/processes": "State:\tT (stopped)",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("no %q in %s:\n%s", want, name, files[name])
		}
	}
	if !strings.Contains(files["rank-4/processes"], fmt.Sprintf("task %d %q", sleeper, "python3")) {
		t.Errorf("the task of %d is not told:\n%s", sleeper, files["rank-4/processes"])
	}
	if got := missing(i, "rank-4/libraries"); !strings.Contains(got, "no such") {
		t.Errorf("of a process that is gone it says %q", got)
	}
	if got := missing(i, "rank-6/processes"); got != errGone.Error() {
		t.Errorf("of a rank that is gone it says %q", got)
	}
}

// TestHang examines real processes with the tools of this machine.
func TestHang(t *testing.T) {
	dir := root(t)
	sleeper := start(t, "python3", "-c", "import time; print('ready', flush=True); time.sleep(1000)")
	b := New(Title{Node: "n1", Why: "hang"})
	shell := start(t, "sh", "-c", "echo ready; exec sleep 1000")
	b.Ranks(t.Context(), []Rank{{Number: 0, PIDs: []int{sleeper}, RAS: "127.0.0.1:1"}, {Number: 1, PIDs: []int{shell}}}, true)
	name, err := b.Write(dir)
	must(t, err)
	i, files := unpack(t, dir, name)
	for _, name := range []string{"stacks.txt", "rank-0/stacks.txt"} {
		if got := files[name]; missing(i, name) != "" || !strings.Contains(got, "<module>") || !strings.Contains(got, "r0") {
			t.Errorf("%s of a process that sleeps (%s) is\n%s", name, missing(i, name), got)
		}
	}
	stack, why := files["rank-1/stacks.txt"], missing(i, "rank-1/stacks.txt")
	_, noGDB := exec.LookPath("gdb")
	switch {
	case noGDB != nil:
		if !strings.Contains(why, "gdb is not installed") {
			t.Errorf("without a debugger it says %q", why)
		}
	case why == "" && !strings.Contains(stack, "#0 "):
		t.Errorf("the stack of a process without Python is\n%s", stack)
	case why != "" && !strings.Contains(why, "deadline"): // gdb may be too slow on a busy machine
		t.Errorf("no stack: %s", why)
	}
	if got := missing(i, "rank-0/ras.txt"); !strings.Contains(got, "reach NCCL's RAS service") {
		t.Errorf("of NCCL it says %q", got)
	}
	if got := missing(i, "rank-0/flight-recorder"); !strings.Contains(got, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE") {
		t.Errorf("of torch it says %q", got)
	}
}

// TestFlightRecorder has a shell that plays torch.
func TestFlightRecorder(t *testing.T) {
	dir := t.TempDir()
	pid := start(t, "sh", "-c", fmt.Sprintf(`cd %s; mkfifo pipe7.pipe; exec 3<>pipe7.pipe; echo ready; read x <&3; echo other >dump71
printf '\200password=hunter22' >dump7; exec sleep 1000`, dir))
	env := []string{"TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + dir + "/pipe", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + dir + "/dump"}
	got, err := flightRecorder(Rank{Number: 7, Env: env, PIDs: []int{pid}})(t.Context())
	if err != nil || string(got) != "\200password=hunter22" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := flightRecorder(Rank{Number: 8, Env: env, PIDs: []int{pid}})(t.Context()); err == nil || !strings.Contains(err.Error(), "pipe8.pipe") {
		t.Errorf("without a pipe: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := flightRecorder(Rank{Number: 7, Env: env, PIDs: []int{pid}})(ctx); err == nil || !strings.Contains(err.Error(), "did not write") {
		t.Errorf("of torch that does not answer: %v", err)
	}
}

// TestALargeDump checks that a large dump is read only up to its bound.
func TestALargeDump(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dump")
	must(t, os.WriteFile(name, nil, 0o600))
	must(t, os.Truncate(name, 1<<40))
	if got, err := readDump(name); err != nil || len(got) != maxDump+1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestSecrets(t *testing.T) {
	dir := root(t)
	env := []string{
		"HF_TOKEN=hf_abcdefgh", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "db_passwd=x", "PLAIN=unseen", "URL=https://u:pw@host/hf_abcdefgh",
		"AUTHORIZATION=Bearer hf_abcdefgh", "LINES=a\nTOKEN=b", "NCCL_DEBUG=INFO", "SLURM_JWT=eyJhbGciOi", "SLURM_JOB_ID=7", "DB_PASS=hunter22",
		"MYSQL_PWD=tiger123", "AZURE_STORAGE_CONNECTION_STRING=AccountKey=abcdefgh==", "SLACK_WEBHOOK_URL=https://hooks.example/T0/B0/xyz",
		"TORCH_NCCL_PROXY=http://me:mine@proxy", "MY_SCRATCH=/scratch/me", "PWD=/home/me/project", "PROJECT=/home/me/project", "ME=me/project",
		"TOKENIZERS_PARALLELISM=false", "GOLAUNCH_TOKEN=abcdefghijklmnop",
	}
	leaks := "hunter22 tiger123 AccountKey=abcdefgh== https://hooks.example/T0/B0/xyz eyJhbGciOi abcdefghijklmnop"
	must(t, os.WriteFile(filepath.Join(dir.Name(), "rank-0.stderr.log"), []byte("login with wJalrXUtnFEMI failed in /home/me/project, /scratch/me: "+leaks+"\n"), 0o600))
	b := New(Title{Node: "n1"})
	b.envs = [][]string{env}
	b.patient(t, []source{
		{name: "env", from: "test", read: environment(Rank{Env: env})},
		{name: "log", from: "test", read: end(dir, "rank-0.stderr.log")},
		{name: "none", from: "test", read: func(context.Context) ([]byte, error) { return nil, errors.New("no hf_abcdefgh") }},
	})
	name, err := b.Write(dir)
	must(t, err)
	_, files := unpack(t, dir, name)
	want := "AUTHORIZATION=***\nAWS_SECRET_ACCESS_KEY=***\nAZURE_STORAGE_CONNECTION_STRING=***\nDB_PASS=***\nGOLAUNCH_TOKEN=***\nHF_TOKEN=***\n" +
		"LINES=***\nME=***\nMYSQL_PWD=***\nMY_SCRATCH=***\nNCCL_DEBUG=INFO\nPLAIN=***\nPROJECT=***\nPWD=/home/me/project\nSLACK_WEBHOOK_URL=***\n" +
		"SLURM_JOB_ID=7\nSLURM_JWT=***\nTOKENIZERS_PARALLELISM=false\nTORCH_NCCL_PROXY=http://***@proxy\nURL=***\ndb_passwd=***\n"
	if files["env"] != want {
		t.Errorf("the environment is\n%swant\n%s", files["env"], want)
	}
	if want := "login with *** failed in /home/me/project, /scratch/me: *** *** *** *** *** ***\n"; files["log"] != want {
		t.Errorf("the last words are %q, want %q", files["log"], want)
	}
	for name, text := range files {
		if strings.Contains(text, "hf_abcdefgh") || strings.Contains(text, "wJalr") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
}

func TestNode(t *testing.T) {
	dir := root(t)
	must(t, os.WriteFile(filepath.Join(dir.Name(), "long"), append(bytes.Repeat([]byte("x"), maxWords), "end\n"...), 0o600))
	b := New(Title{Node: "n1"})
	b.Words(t.Context(), dir, []Rank{{Number: 1, Logs: []string{"long", "short"}}})
	b.Node(t.Context(), nil)
	name, err := b.Write(dir)
	must(t, err)
	i, files := unpack(t, dir, name)
	if text := files["rank-1/long"]; len(text) != maxWords || !strings.HasSuffix(text, "xend\n") {
		t.Errorf("%d bytes of the log", len(text))
	}
	if got := missing(i, "rank-1/short"); got != "it has written nothing" {
		t.Errorf("of a log that is not there it says %q", got)
	}
	if !strings.Contains(files["node/network.txt"], "net/lo/mtu 65536") {
		t.Errorf("the network is\n%s%s", files["node/network.txt"], missing(i, "node/network.txt"))
	}
}

func TestNetworkAndKernelLog(t *testing.T) {
	class := fstest.MapFS{
		"net/eth0/statistics/rx_errors":                    {Data: []byte("7\n")},
		"net/eth0/statistics/tx_errors":                    {Data: []byte("0\n")},
		"infiniband/mlx5_0/ports/1/state":                  {Data: []byte("1: DOWN\n")},
		"infiniband/mlx5_0/ports/1/counters/link_downed":   {Data: []byte("3\n")},
		"infiniband/efa_0/ports/1/hw_counters/rx_drops":    {Data: []byte("9\n")},
		"infiniband/efa_0/ports/1/counters/never_readable": {Mode: os.ModeDir},
	}
	got, err := network(class)(t.Context())
	want := "net/eth0/statistics/rx_errors 7\ninfiniband/mlx5_0/ports/1/state 1: DOWN\ninfiniband/mlx5_0/ports/1/counters/link_downed 3\n" +
		"infiniband/efa_0/ports/1/hw_counters/rx_drops 9\n"
	if string(got) != want || err != nil {
		t.Errorf("%v\n%swant\n%s", err, got, want)
	}
	log := "NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus\n" + strings.Repeat("noise\n", maxLog/6)
	got, err = kernelLog(func() (string, error) { return log, nil }, true)(t.Context())
	if !strings.HasPrefix(string(got), "Xid 79 on 0000:0f:00\n") || len(got) > maxLog+100 || err != nil {
		t.Errorf("%v, %d bytes: %.100s", err, len(got), got)
	}
}

// TestDeadlines checks that neither a tool nor a read can delay a restart.
func TestDeadlines(t *testing.T) {
	dir := root(t)
	fifo := filepath.Join(dir.Name(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	held, err := os.OpenFile(fifo, os.O_RDWR, 0)
	must(t, err)
	defer held.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // cancel once the tool's child runs
		if _, err := held.Read(make([]byte, 1)); err == nil {
			cancel()
		}
	}()
	b := New(Title{Node: "n1"})
	never := make(chan struct{})
	defer close(never)
	b.gather(t.Context(), []source{{name: "tool", from: "sh", read: func(context.Context) ([]byte, error) {
		return run(ctx, nil, "sh", "-c", "echo partly; { echo >"+fifo+"; sleep 1000; } & wait")
	}}})
	b.gather(ctx, []source{
		{name: "stuck", from: "test", read: func(context.Context) ([]byte, error) { <-never; return nil, nil }},
	})
	name, err := b.Write(dir)
	must(t, err)
	i, files := unpack(t, dir, name)
	if files["tool"] != "partly\n" || !strings.Contains(missing(i, "tool"), "canceled") {
		t.Errorf("of a tool that was killed there is %q, %s", files["tool"], missing(i, "tool"))
	}
	if missing(i, "stuck") != "it was not there in time" {
		t.Errorf("of a read that is stuck it says %q", missing(i, "stuck"))
	}
}

func TestBounds(t *testing.T) {
	dir := root(t)
	must(t, os.WriteFile(filepath.Join(dir.Name(), "bundle-n10-attempt-0.tar.gz"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir.Name(), "notes"), nil, 0o600))
	for attempt := range 8 {
		b := New(Title{Node: "n1", Attempt: attempt})
		var sources []source
		for n := range 20 {
			sources = append(sources, source{name: fmt.Sprint("part", n), from: "test", most: 4 << 20, read: func(context.Context) ([]byte, error) {
				return make([]byte, 5<<20), nil
			}})
		}
		if attempt == 7 {
			b.patient(t, sources)
		}
		name, err := b.Write(dir)
		must(t, err)
		at := time.Unix(int64(attempt), 0)
		must(t, os.Chtimes(filepath.Join(dir.Name(), name), at, at))
	}
	i, files := unpack(t, dir, "bundle-n1-attempt-7.tar.gz")
	total := 0
	for name, text := range files {
		if name != "index.json" {
			total += len(text)
		}
	}
	if total != maxTotal || !i.Entries[0].Truncated || i.Entries[19].Size != 0 || !i.Entries[19].Truncated {
		t.Errorf("%d bytes, the last is %+v", total, i.Entries[19])
	}
	entries, err := os.ReadDir(dir.Name())
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(e.Name(), "bundle-n1-attempt-"), ".tar.gz"))
	}
	if got := strings.Join(names, " "); got != "0 4 5 6 7 bundle-n10-attempt-0 notes" {
		t.Errorf("kept are %s", got)
	}
}

// BenchmarkCrash measures what a restart waits for on a node with 8 ranks of 17 threads each.
func BenchmarkCrash(b *testing.B) {
	var ranks []Rank
	for n := range 8 {
		pid := start(b, "python3", "-c", `import threading, time
for _ in range(16): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ready", flush=True); time.sleep(1000)`)
		ranks = append(ranks, Rank{Number: n, PIDs: []int{pid}, Env: os.Environ()})
	}
	for b.Loop() {
		New(Title{}).Ranks(b.Context(), ranks, false)
	}
}

// TestRanksOfAnotherUser checks that another user's ranks are examined with that user's rights.
// That user gets only the kernel's messages about the ranks' GPUs.
func TestRanksOfAnotherUser(t *testing.T) {
	got, err := kernelLog(func() (string, error) { return "NVRM: Xid (PCI:0000:0f:00): 79, GPU\nsecret\n", nil }, false)(t.Context())
	if string(got) != "Xid 79 on 0000:0f:00\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root has ranks of others")
	}
	walter := &safefile.Rights{UID: 1234, GID: 1235, Groups: []uint32{1236}}
	got, err = run(t.Context(), walter, "id", "-u")
	if string(got) != "1234\n" || err != nil {
		t.Errorf("a debugger is uid %q, %v", got, err)
	}
	dir := t.TempDir() // only root may enter it
	must(t, unix.Mkfifo(filepath.Join(dir, "ask0.pipe"), 0o666))
	env := []string{"TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + dir + "/ask", "TORCH_FR_DUMP_TEMP_FILE=" + dir + "/dump"}
	got, err = flightRecorder(Rank{Env: env, PIDs: []int{os.Getpid()}, Rights: walter})(t.Context())
	if len(got) > 0 || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("he gets %q, %v", got, err)
	}
}
