package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// screenPatience bounds the wait for a text on a screen.
const screenPatience = time.Minute

// terminal is a tmux on a node, with a shell in a window.
type terminal struct {
	t      *testing.T
	node   nettest.Node
	socket string
	home   string
}

// newTerminal opens a terminal of 80x24, in which golaunch is in the PATH.
func newTerminal(t *testing.T, h *heads, env ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		suite.Missing(t, "install tmux: no terminal is here")
	}
	x := &terminal{t, h.nodes[0], filepath.Join(t.TempDir(), "tmux"), h.home}
	t.Cleanup(func() { x.command("kill-server").Run() }) // tmux may have ended
	shell := append([]string{"env", "TERM=screen-256color", "LC_ALL=C.UTF-8", "GOLAUNCH_COORDINATOR=", "HOME=" + h.home, "PS1=ready> "}, env...)
	x.do(append([]string{"new-session", "-d", "-x", "80", "-y", "24"}, append(shell, "sh")...)...)
	x.sees(`ready>`)
	return x
}

func (x *terminal) command(args ...string) *exec.Cmd {
	cmd := x.node.Command(append([]string{"tmux", "-S", x.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(cmd.Environ(), "HOME="+x.home, "LC_ALL=C.UTF-8")
	return cmd
}

func (x *terminal) do(args ...string) string {
	x.t.Helper()
	out, err := x.command(args...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// press sends keys, as tmux names them.
func (x *terminal) press(keys ...string) {
	x.t.Helper()
	x.do(append([]string{"send-keys"}, keys...)...)
}

// run types a command.
func (x *terminal) run(command string) {
	x.t.Helper()
	x.do("send-keys", "-l", command)
	x.press("Enter")
}

func (x *terminal) resize(width, height string) {
	x.t.Helper()
	x.do("resize-window", "-x", width, "-y", height)
}

// sees waits until the screen has a match. tmux has no event for that.
func (x *terminal) sees(pattern string) string {
	x.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	limit := time.After(screenPatience)
	for {
		text := x.do("capture-pane", "-p")
		if re.MatchString(text) {
			return text
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			x.t.Fatalf("the screen does not show %q:\n%s", pattern, text)
		}
	}
}

// colour waits until the word for the state of the job has another colour than before, and returns
// the new colour.
func (x *terminal) colour(before string) string {
	x.t.Helper()
	re := regexp.MustCompile(`(?m)^(?:\x1b\[[0-9;]*m)*\x1b\[([0-9;]*38;5;[0-9;]+)m(?:training|stalled)`)
	limit := time.After(screenPatience)
	for {
		text := x.do("capture-pane", "-p", "-e")
		if found := re.FindStringSubmatch(text); found != nil && found[1] != before {
			return found[1]
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			x.t.Fatalf("there is no colour but %q:\n%q", before, text)
		}
	}
}

// watchedJob is a job of three ranks with heartbeats; the last rank stops at step 20.
const watchedJob = `i=0
while :; do
	i=$((i+1))
	echo $i 100000 >$GOLAUNCH_HEARTBEAT_FILE
	echo "step $i loss=0.4$RANK"
	if [ $RANK = 2 ] && [ $i = 20 ]; then printf '\033[31mstuck\033[2J\n'; exec sleep 1000; fi
	sleep 0.2
done`

// TestTopInATerminal does what a person does in a real terminal, and checks the screens.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	coordinator := h.coordinate()
	h.join(1, "n10", 0)
	h.do("run", "--detach", "--job-id", "llama", "--procs-per-node", "3", "--", "sh", "-c", watchedJob)
	seen := filepath.Join(h.dir, "seen") // if there are two jobs, top opens none
	h.do("run", "--detach", "--job-id", "short", "--procs-per-node", "1", "--", "sh", "-c", "until [ -e "+seen+" ]; do sleep 0.1; done; exit 3")
	x := newTerminal(t, h)

	x.run("golaunch top; stty -a | grep -o -- '-*icanon'; echo code $?")
	x.sees(`^golaunch top +.*\d\d:\d\d:\d\d$`)
	x.sees(`^>. llama +training`)
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.press("Enter")
	x.sees(`golaunch top > llama > attempt 0`)
	x.sees(`^>▲ +2 +20 .*\d+ steps behind, `) // the worst rank is first, with the reason
	x.sees(`▲ rank 2 on n10: \d+ steps behind`)
	x.sees(`^r2 .*█`)
	x.press("j")
	x.sees(`^>  +[01] `)
	x.press("k", "Enter")
	x.sees(`^golaunch top > llama > attempt 0 > n10 > rank 2`)
	x.sees(`runs on +n10, local rank 2, PID \d+, attempt 0`)
	x.press("l")
	if text := x.sees(`^stuck$`); !strings.Contains(text, "log of llama, rank 2: live") {
		t.Errorf("whose log is it?\n%s", text)
	}
	x.press("Escape", "Escape")
	x.sees(`> ranks 3`)
	x.press("Tab", "Tab")
	x.sees(`> events of llama`)
	x.press("Escape", "j", "/", "2")
	x.sees(`^/2_`)
	x.press("Enter")
	x.sees(`ranks with "2" 1`)
	x.press("Escape")
	x.sees(`ranks 3`)
	x.press("s")
	x.sees(`> stacks of llama`)
	x.sees(`sleep.*r\d`)
	x.press("d")
	x.sees(`1 node answered, 0 did not; the median is`)
	x.press("?")
	x.sees(`stands still or has failed`)
	x.press("q")
	x.sees(`ranks 3`)
	x.press("a")
	x.sees(`attempts 1`)
	x.press("Escape")
	dark := x.colour(``)
	x.press("t")
	x.colour(dark)

	x.resize("20", "24")
	if text := x.sees(`^golaunch top > llam…`); strings.Contains(text, "make it larger") {
		t.Errorf("20 columns are too few:\n%s", text)
	}
	x.resize("200", "50")
	x.sees(`── log ─+$|── log of llama, `)
	x.sees(`GPU MEM .*PID`)
	x.resize("80", "24")
	x.sees(`> ranks 3`)

	kill(t, coordinator.cmd.Process.Pid, syscall.SIGKILL)
	coordinator.wait()
	x.sees(`✗ the picture is \d+s old: `)
	h.coordinate()
	x.sees(`▲ rank 2 on n10|✗ rank 2 on n10`)

	x.press("q")
	if text := x.sees(`^code 0$`); strings.Contains(text, "ranks 3") || !strings.Contains(text, "\nicanon\n") {
		t.Errorf("the terminal is not left as it was:\n%s", text)
	}

	x.run("clear; NO_COLOR=1 golaunch top llama")
	x.sees(`rank 2 on n10`)
	if text := x.do("capture-pane", "-p", "-e"); regexp.MustCompile(`\x1b\[[0-9;]*[34]8;|\x1b\[[0-9;]*[349][0-7]m`).MatchString(text) {
		t.Errorf("NO_COLOR has colours:\n%q", text)
	}
	x.press("C-c")
	x.sees(`^ready> *$`)
	x.run("clear; until golaunch jobs --all | grep -q 'short.*failed'; do sleep 0.1; done; clear; TERM=dumb golaunch top short; echo code $?")
	x.sees(`^failed `)
	x.sees(`^code 1$`)
	x.run("clear; golaunch top llama </dev/null; echo code $?") // without a keyboard
	x.sees(`^code [01]$`)
	h.do("stop", "--all")
}

// TestTopOfALocalJob: top shows when a job of this machine is over, how it ended, and the next job.
func TestTopOfALocalJob(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	x := newTerminal(t, h)
	begin := func(job string) *process {
		return h.start(0, "--coordinator", "none", "--job-id", job, "--", "sh", "-c", "until [ -e end-"+job+" ]; do sleep 0.1; done")
	}
	end := func(job string, p *process) {
		if err := os.WriteFile(filepath.Join(h.dir, "end-"+job), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.wait()
	}
	first := begin("first")
	x.run("until golaunch top first --once >/dev/null 2>&1; do sleep 0.1; done; golaunch top")
	x.sees(`^golaunch top > first > attempt 0`)
	end("first", first)
	x.sees(`^success `)
	x.sees(`^  job succeeded: 1 rank exited 0`)
	second := begin("second")
	x.press("Escape")
	x.sees(`^>. second +\S+`)
	x.sees(`^   first +success +`)
	end("second", second)
	if text := x.sees(`second +success +`); strings.Contains(text, "the picture is") {
		t.Errorf("jobs that are over make the picture old:\n%s", text)
	}
	x.press("q")
}
