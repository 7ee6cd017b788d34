package launcher

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

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/process/logs"
)

// connection is one ssh.
type connection struct {
	host Host
	cmd  *exec.Cmd
	line string
	// greeted says that the agent lives: from then on it ends by itself, and before that all words are those of ssh.
	greeted atomic.Bool
	// late says that it did not within sshLimit.
	late atomic.Bool
	// said are the words before that, of standard output and standard error.
	said [2]string
}

// run gives the agent its order and shows what it prints; up is called when it lives.
func (c *connection) run(h *here, order []byte, up func()) error {
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	// A group of its own, with what ssh starts to reach the host: ^C on the terminal is the coordinator's to hear.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.Cancel = func() error {
		if c.greeted.Load() {
			time.AfterFunc(sshHangup, func() { stdin.Close() })
		} else {
			kill()
		}
		return nil
	}
	c.cmd.WaitDelay = endLimit
	output, err := c.relay(h, up)
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("%w on %s: cannot start ssh: %w", errUnreached, c.host.Name, err)
	}
	limit := time.AfterFunc(sshLimit, func() {
		if !c.greeted.Load() {
			c.late.Store(true)
			kill()
		}
	})
	defer limit.Stop()
	_, _ = stdin.Write(order) // an ssh that does not take it has an exit code
	shown := output.Wait()
	return errors.Join(c.why(c.cmd.Wait()), shown)
}

// relay shows what the agent prints, which it has prefixed already, and keeps what was said before it lived.
func (c *connection) relay(h *here, up func()) (*errgroup.Group, error) {
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
		c.said[0], _ = greeting(r)
		return h.console.Relay(r, logs.Stdout)
	})
	both.Go(func() error {
		r := bufio.NewReader(words)
		said, greeted := greeting(r)
		if c.said[1] = said; greeted {
			c.greeted.Store(true)
			up()
		}
		return h.console.Relay(r, logs.Stderr)
	})
	return &both, nil
}

// greetingLine is what an agent prints first.
const greetingLine = "golaunch: this node is up"

// greet tells who started this process that it lives, and where its own words begin.
func greet() {
	fmt.Fprintln(os.Stdout, greetingLine)
	fmt.Fprintln(os.Stderr, greetingLine)
}

// greeting reads up to that. What comes before are the words of ssh, of the server and of a login shell; the last three lines remain.
func greeting(r *bufio.Reader) (said string, greeted bool) {
	var lines []string
	for {
		text, err := r.ReadSlice('\n')
		line := strings.TrimSpace(strings.Map(printable, string(text)))
		switch {
		case line == greetingLine:
			return "", true
		case line != "":
			lines = append(lines[max(0, len(lines)-2):], fmt.Sprintf("%.200s", line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return strings.Join(lines, "; "), false
		}
	}
}

// printable keeps a server from writing to a terminal more than text.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return -1
	}
	return r
}

// why says what is wrong with a host, if anything is.
func (c *connection) why(ended error) error {
	name, code := c.host.Name, c.cmd.ProcessState.ExitCode()
	switch {
	case c.greeted.Load() && code == 0:
		return nil
	case c.greeted.Load():
		return fmt.Errorf("the agent of %s is gone: ssh ended: %w", name, ended)
	case c.late.Load():
		return fmt.Errorf("%w on %s: ssh has not started it within %v%s", errUnreached, name, sshLimit, c.words())
	case code == 255: // ssh(1), exit status
		return fmt.Errorf("%w on %s: ssh failed%s", errUnreached, name, c.words())
	case code == 126 || code == 127:
		return fmt.Errorf("%w on %s%s; install this golaunch there at the same path", errUnreached, name, c.words())
	case code < 0:
		return fmt.Errorf("%w on %s: ssh ended: %w%s", errUnreached, name, ended, c.words())
	}
	return fmt.Errorf("%w on %s%s (exit code %d of %s)", errUnreached, name, c.words(), code, c.line)
}

func (c *connection) words() string {
	said := cmp.Or(c.said[1], c.said[0])
	if said == "" {
		return ""
	}
	return ": " + said
}
