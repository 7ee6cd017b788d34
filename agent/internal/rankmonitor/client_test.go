package rankmonitor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// patience bounds each wait of a test.
const patience = 60 * time.Second

// versions returns NVRx's versions beside a Python that has their dependencies: the newest version,
// or all.
func versions(t *testing.T) (python string, dirs []string) {
	t.Helper()
	python = suite.Optional(t, "GOLAUNCH_TEST_NVRX", "Python with nvidia-resiliency-ext")
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "versions", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no versions of NVRx beside %s", python)
	}
	slices.Sort(dirs)
	if !suite.All() {
		dirs = dirs[len(dirs)-1:]
	}
	return python, dirs
}

// clients are NVRx's clients in a separate process.
type clients struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
	pid int
}

func startClients(t *testing.T, python, version string) *clients {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "testdata/drive.py", version)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &clients{t, in, bufio.NewScanner(out), cmd.Process.Pid}
	t.Cleanup(func() {
		in.Close()
		timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer timer.Stop()
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error("NVRx's clients:", err)
		}
	})
	c.answer("ready")
	return c
}

// answer waits for the answer of a client.
func (c *clients) answer(want string) string {
	c.t.Helper()
	got := make(chan string, 1)
	go func() {
		c.out.Scan()
		got <- c.out.Text()
	}()
	select {
	case text := <-got:
		if want != "" && !strings.Contains(text, want) {
			c.t.Fatalf("a client says %q; want %q", text, want)
		}
		return text
	case <-time.After(patience):
		c.t.Fatalf("a client has not said %q for %v", want, patience)
	}
	return ""
}

// run makes the client of a place do something, and returns its answer.
func (c *clients) run(want, format string, args ...any) string {
	c.t.Helper()
	fmt.Fprintf(c.in, format+"\n", args...)
	return c.answer(want)
}

// bed is a server for two ranks, 4 and 5.
type bed struct {
	*Server
	t     *testing.T
	asked chan Request
	// mine is the only process that may connect. If it is 0, any process may.
	mine  atomic.Int64
	warns chan error
}

func newBed(t *testing.T, config string, learned *Learned) *bed {
	t.Helper()
	c, err := Parse(config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, asked: make(chan Request, 8), warns: make(chan error, 64)}
	b.Server, err = Serve(Options{
		Config: c, Ranks: []int{4, 5}, UID: os.Geteuid(), GID: os.Getegid(), Learned: learned,
		Mine: func(pid int) bool {
			mine := b.mine.Load()
			return mine == 0 || int64(pid) == mine
		},
		Asked: func(r Request) { b.asked <- r }, Warn: func(err error) { b.warns <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// awaitDue waits until a rank becomes overdue, or until no rank is overdue any more.
func (b *bed) awaitDue() {
	b.t.Helper()
	select {
	case <-b.Due():
	case <-time.After(patience):
		b.t.Fatalf("no rank was overdue for %v: %v", patience, b.Waits())
	}
}

func TestClients(t *testing.T) {
	python, dirs := versions(t)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			talk(t, python, dir)
		})
	}
}

// talk makes the clients of a version do what Megatron-LM and Lightning do.
func talk(t *testing.T, python, version string) {
	var learned Learned
	b := newBed(t, "setup:none,step:1,checkpointing:3600,rank_out_of_section_timeout=3600", &learned)
	c := startClients(t, python, version)
	b.mine.Store(int64(c.pid))
	c.run("done", "0 at %s", b.sockets.Path(""))
	c.run(`[null, null, {"checkpointing": 3600.0, "setup": null, "step": 1.0}, 3600.0]`, "0 init")
	c.run("", "1 init")
	c.run("done", "0 start_section setup")
	c.run("done", "1 start_section checkpointing")
	c.run("done", "0 send_heartbeat")
	c.run("done", "0 send_heartbeat")
	c.run("done", "0 end_section setup")
	c.run("done", "0 start_section step")
	b.awaitDue() // rank 4 is in its step for more than a second
	want := func(overdue bool, zero, one string) {
		t.Helper()
		w := b.Waits()
		if len(w) != 2 || w[0].Rank != 4 || w[0].Overdue != overdue || w[0].Does != zero || w[1].Rank != 5 || w[1].Overdue || w[1].Does != one {
			t.Fatalf("waits %+v; want %q and %q", w, zero, one)
		}
	}
	want(true, "in section step, which may take 1s", "in section checkpointing, which may take 1h0m0s")
	c.run("done", "0 end_section step")
	b.awaitDue() // no rank is overdue any more
	want(false, "between sections, which may take 1h0m0s", "in section checkpointing, which may take 1h0m0s")

	for _, section := range []string{"setup", "step", "checkpointing"} {
		c.run("done", "0 start_section %s", section)
		c.run("done", "0 end_section %s", section)
	}
	limits := c.run("", "0 learn")
	state := c.run(`"were_calculated": true`, "0 state")
	c.run("taken", "1 request 1 NVLink")
	if got, want := <-b.asked, (Request{Rank: 5, Action: ActionExclude, Why: "NVLink"}); got != want {
		t.Errorf("a client asks for %+v, want %+v", got, want)
	}
	c.run("done", "0 shutdown_workload_monitoring")
	b.Close()

	next := newBed(t, "setup:none,step:1", &learned)
	defer next.Close()
	c.run("done", "0 at %s", next.sockets.Path(""))
	if got := c.run("", "0 init"); got != limits {
		t.Errorf("the next attempt has the limits %s, the last one learned %s", got, limits)
	}
	if got := c.run("", "1 init"); got == limits {
		t.Errorf("a rank has the limits %s of another", got)
	}
	c.run("done", "1 shutdown_workload_monitoring")
	var first, second []any
	if err := json.Unmarshal([]byte(limits), &first); err != nil {
		t.Fatal(err)
	}
	got := c.run("", "1 init %s", strings.ReplaceAll(state, " ", "")) // the state is as a checkpoint has it
	if err := json.Unmarshal([]byte(got), &second); err != nil || fmt.Sprint(first[:2]) != fmt.Sprint(second[:2]) {
		t.Errorf("a client with the state %s starts with %s: %v", state, got, err)
	}
	if got := learned.of(1, Limits{}); got.Heartbeat == 0 || got.Sections["step"] == 0 {
		t.Errorf("the server has not got the limits that a client has loaded: %+v", got)
	}
}
