// Package provider asks for nodes by calling the commands of a site: Slurm's commands, kubectl,
// ssh, a cloud's command, or any command that speaks JSON. All providers keep the contract of
// rendezvous.Provider.
package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
)

// Agent is the command line of the agents that a provider starts.
type Agent struct {
	// Golaunch is the path of golaunch. Coordinator is the value of the agents' --coordinator.
	Golaunch, Coordinator string
	// TokenFile is the value of the agents' --token-file; empty for the default.
	TokenFile string
	// Labels are the labels of the nodes, KEY=value. Flags are further words of the command line.
	Labels, Flags []string
}

// command returns the command line of the agent of a tag. It contains no secret.
func (a Agent) command(tag string) []string {
	line := []string{a.Golaunch, "agent", "--coordinator", a.Coordinator, "--label", capacity.TagLabel + "=" + tag}
	if a.TokenFile != "" {
		line = append(line, "--token-file", a.TokenFile)
	}
	for _, l := range a.Labels {
		line = append(line, "--label", l)
	}
	return append(line, a.Flags...)
}

const (
	// maxOutput bounds the output of a command.
	maxOutput = 4 << 20
	// endTime is the time that a command may take to end after golaunch has told it to end.
	endTime = 2 * time.Second
)

// run runs a command of the site, and returns its output.
func run(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	return call{stdin: bytes.NewReader(stdin), name: name, args: args}.run(ctx)
}

// call is a call of a command of the site. env has defaults: a variable that the user has set keeps
// the user's value.
type call struct {
	env   []string
	stdin io.Reader
	name  string
	args  []string
}

// run returns the output of the command. If the command fails, the error has the reason that the
// command printed on stderr. run removes the coordinator's token from the command's environment,
// since schedulers keep the environment of the jobs that they start.
func (c call) run(ctx context.Context) ([]byte, error) {
	group, err := newGroup()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	defer group.close()
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(slices.Clone(c.env), slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOLAUNCH_TOKEN=") })...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group.id(), Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-group.id(), syscall.SIGKILL) }
	cmd.WaitDelay = endTime
	cmd.Stdin = c.stdin
	stdout, stderr := &bounded{most: maxOutput}, &bounded{most: maxWords}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	runtime.LockOSThread() // the kernel sends Pdeathsig when the thread that forked the child ends
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", c.name, ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s has ended, but what it started has its stdout or stderr open; redirect these", c.name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w%s", c.name, err, said(stderr.text))
	case stdout.cut:
		return nil, fmt.Errorf("%s printed more than %d MiB", c.name, maxOutput>>20)
	}
	return stdout.text, nil
}

// group is a process group that does not outlive this process: if this process is killed, the first
// process of the group kills the group. Processes that a command starts in a session of their own
// are not in the group.
type group struct {
	leader *exec.Cmd
	// alive is a pipe to leader. It is closed when this process ends, and leader then kills the
	// group.
	alive io.Closer
}

func newGroup() (*group, error) {
	g := &group{leader: exec.Command("sh", "-c", "read -r _; kill -KILL 0")}
	g.leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.leader.Env = []string{"PATH=" + os.Getenv("PATH")}
	in, err := g.leader.StdinPipe()
	if err == nil {
		g.alive, err = in, g.leader.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot watch it: %w", err)
	}
	return g, nil
}

func (g *group) id() int { return g.leader.Process.Pid }

// close ends the watch over the group. Processes of the group that still run may run on.
func (g *group) close() {
	_ = g.leader.Process.Kill() // without this kill, leader would wait on
	_ = g.leader.Wait()         // with "signal: killed", which also closes alive
}

// maxWords bounds the part of a command's stderr that run reads, and maxLine the part that an error
// shows.
const maxWords, maxLine = 16 << 10, 512

// said returns the first line of stderr that is no warning. If this line ends with a colon, such as
// gcloud's "Could not fetch resource:", said adds the next line, which has the reason. If there are
// only warnings, it returns the first of them.
func said(stderr []byte) string {
	var lines []string
	warning := ""
	for line := range strings.Lines(string(stderr)) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case len(lines) == 0 && isWarning(line):
			warning = cmp.Or(warning, line)
		case len(lines) == 0 && warning != "" && strings.HasPrefix(line, "- "): // the subject of gcloud's warning
		default:
			lines = append(lines, line)
		}
	}
	text := warning
	if len(lines) > 0 {
		text = lines[0]
	}
	if len(lines) > 1 && strings.HasSuffix(text, ":") {
		text += " " + lines[1]
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %.*s", maxLine, text)
}

// isWarning reports whether a line is a warning of ssh, gcloud or Python. Python prints a second
// line, with the source line of the warning.
func isWarning(line string) bool {
	return strings.Contains(strings.ToLower(line), "warning:") || strings.HasPrefix(line, "warnings.warn(")
}

// bounded is a writer that keeps only the beginning of the data.
type bounded struct {
	text []byte
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), b.most-len(b.text))
	b.cut = b.cut || room < len(p)
	b.text = append(b.text, p[:room]...)
	return len(p), nil
}

// errNonsense returns an error that quotes a command's output, which golaunch does not understand.
func errNonsense(name string, out []byte, err error) error {
	shown := out[:min(len(out), 80)]
	return fmt.Errorf("%s printed what is not its answer: %q (%w)", name, shown, err)
}
