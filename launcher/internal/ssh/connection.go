package ssh

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/golaunch/golaunch/internal/process/console"
	"golang.org/x/sync/errgroup"
)

// connection is one ssh process.
type connection struct {
	host string
	cmd  *exec.Cmd
	// line is the command that the host's login shell runs.
	line string
	// greeted says that the agent runs: from then on it ends by itself. Before the greeting, all
	// output is ssh's, the server's or the login shell's.
	greeted atomic.Bool
	// late says that the agent did not greet within startLimit.
	late atomic.Bool
	// before is the output before the greeting, of standard output and standard error.
	before [2]string
}

// run gives the agent its order and shows its output. It calls up when the agent runs.
func (c *connection) run(order []byte, show Relay, up func()) error {
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	// ssh has its own process group, with the programs that it starts to reach the host: a ^C on
	// the terminal is for the coordinator.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.Cancel = func() error {
		if c.greeted.Load() {
			time.AfterFunc(hangUpAfter, func() { stdin.Close() })
		} else {
			kill()
		}
		return nil
	}
	c.cmd.WaitDelay = endLimit
	output, err := c.relay(show, up)
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("%w on %s: cannot start ssh: %w", ErrNoAgent, c.host, err)
	}
	limit := time.AfterFunc(startLimit, func() {
		if !c.greeted.Load() {
			c.late.Store(true)
			kill()
		}
	})
	defer limit.Stop()
	_, _ = stdin.Write(order) // if ssh does not read the order, its exit code says why
	shown := output.Wait()
	return errors.Join(c.failure(c.cmd.Wait()), shown)
}

// relay shows the agent's output, which has prefixes already, and keeps the output before the
// greeting.
func (c *connection) relay(show Relay, up func()) (*errgroup.Group, error) {
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	words, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var both errgroup.Group
	both.Go(func() error {
		r := bufio.NewReader(out)
		c.before[0], _ = readGreeting(r)
		return show(r, console.Stdout)
	})
	both.Go(func() error {
		r := bufio.NewReader(words)
		before, greeted := readGreeting(r)
		if c.before[1] = before; greeted {
			c.greeted.Store(true)
			up()
		}
		return show(r, console.Stderr)
	})
	return &both, nil
}

// greeting is the first line that an agent prints.
const greeting = "golaunch: this node is up"

// Greet tells the process that started this one by ssh that the agent runs, and where the agent's
// output begins.
func Greet() {
	fmt.Fprintln(os.Stdout, greeting)
	fmt.Fprintln(os.Stderr, greeting)
}

// readGreeting reads to the end of the greeting. It returns the last three lines if there is none.
func readGreeting(r *bufio.Reader) (before string, greeted bool) {
	var lines []string
	for {
		text, err := r.ReadSlice('\n')
		line := strings.TrimSpace(strings.Map(printable, string(text)))
		switch {
		case line == greeting:
			return "", true
		case line != "":
			lines = append(lines[max(0, len(lines)-2):], fmt.Sprintf("%.200s", line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return strings.Join(lines, "; "), false
		}
	}
}

// printable drops characters that do more to a terminal than print text: a server could send them.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return -1
	}
	return r
}

// failure says what is wrong with a host; nil for an agent that ended in order.
func (c *connection) failure(ended error) error {
	code := c.cmd.ProcessState.ExitCode()
	switch {
	case c.greeted.Load() && code == 0:
		return nil
	case c.greeted.Load():
		return fmt.Errorf("the agent of %s is gone: ssh ended: %w", c.host, ended)
	case c.late.Load():
		return fmt.Errorf("%w on %s: ssh has not started it within %v%s", ErrNoAgent, c.host, startLimit, c.output())
	case code == 255: // ssh(1), exit status
		return fmt.Errorf("%w on %s: ssh failed%s", ErrNoAgent, c.host, c.output())
	case code == 126 || code == 127:
		return fmt.Errorf("%w on %s%s; install this golaunch there at the same path", ErrNoAgent, c.host, c.output())
	case code < 0:
		return fmt.Errorf("%w on %s: ssh ended: %w%s", ErrNoAgent, c.host, ended, c.output())
	}
	return fmt.Errorf("%w on %s%s (exit code %d of %s)", ErrNoAgent, c.host, c.output(), code, c.line)
}

func (c *connection) output() string {
	before := cmp.Or(c.before[1], c.before[0])
	if before == "" {
		return ""
	}
	return ": " + before
}
