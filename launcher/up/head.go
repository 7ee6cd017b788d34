package up

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

// head is the machine of a cluster's coordinator.
type head struct {
	// name is the head's name in messages. ssh has the arguments with which ssh reaches the head;
	// nil if this machine is the head.
	name string
	ssh  []string
}

const (
	// answerLimit bounds the run of a script on a head, and fileLimit the run of a script that also
	// gets files.
	answerLimit, fileLimit = time.Minute, 30 * time.Minute
	// lookEvery is the time between two questions to a cloud about a machine that is starting or
	// ending. A cloud sends no event for that.
	lookEvery = 5 * time.Second
	// maxAnswer bounds the output of a script.
	maxAnswer = 1 << 20
)

// command returns a command that runs a script on the head. The script must contain no secret,
// since other users of the machine can see it.
func (h *head) command(ctx context.Context, terminal bool, script string) *exec.Cmd {
	if h.ssh == nil {
		return exec.CommandContext(ctx, "sh", "-c", script)
	}
	args := []string{"-T", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=5"}
	if terminal {
		args = []string{"-t"}
	}
	return exec.CommandContext(ctx, "ssh", append(append(args, h.ssh...), "exec sh -c "+shellword.Quote(script))...)
}

// messageIn returns the message in the line that golaunch --json prints when it fails.
func messageIn(line string) string {
	var shown struct{ Error struct{ Message string } }
	if json.Unmarshal([]byte(line), &shown) != nil {
		return ""
	}
	return shown.Error.Message
}

// run runs a script and returns its output. If the script fails, the error has the last line of its
// stderr.
func (h *head) run(ctx context.Context, stdin io.Reader, script string) (string, error) {
	limit := answerLimit
	if stdin != nil {
		limit = fileLimit
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s did not answer within %v", h.name, limit))
		defer cancel()
	}
	cmd := h.command(ctx, false, script)
	var out, words bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdin, &out, &words, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		lines := strings.Split(strings.TrimSpace(words.String()), "\n")
		if last := cmp.Or(messageIn(lines[len(lines)-1]), lines[len(lines)-1]); last != "" {
			return "", fmt.Errorf("%w: %.400s", err, last)
		}
		return "", err
	}
	return out.String()[:min(out.Len(), maxAnswer)], nil
}

// remedy says what the user can do if the head does not run a script.
func (h *head) remedy() string {
	if h.ssh == nil {
		return ""
	}
	words := []string{"ssh"}
	for _, word := range h.ssh {
		words = append(words, shellword.Quote(word))
	}
	return "; this command must work, and ask no question: " + strings.Join(append(words, "true"), " ")
}

// state has the facts about a cluster that its head knows.
type state struct {
	// home is the home directory on the head. values are the values of the cluster's file at the
	// last golaunch up; empty if none are recorded. address is the coordinator's address; empty if
	// the coordinator does not run.
	home, values, address string
}

// look reads the state of the head.
func (h *head) look(ctx context.Context, dir string) (s state, err error) {
	out, err := h.run(ctx, nil, processes+fmt.Sprintf(`d=%s
printf '%%s\n' "$HOME"
if [ -n "$(pids "--state-dir=$d/state")" ]; then head -n 1 "$d/out" 2>/dev/null || echo; else echo; fi
cat "$d/values" 2>/dev/null || :`, home(dir)))
	if err != nil {
		return s, fmt.Errorf("cannot ask the head %s: %w%s", h.name, err, h.remedy())
	}
	lines := strings.SplitN(out, "\n", 3)
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "/") {
		return s, fmt.Errorf("the head %s printed %.80q: its login shell must print nothing", h.name, out)
	}
	return state{home: lines[0], address: addressIn(lines[1]), values: lines[2]}, nil
}

// addressIn returns the address in the line that a coordinator prints when it starts.
func addressIn(line string) string {
	var shown struct{ Address string }
	if json.Unmarshal([]byte(strings.TrimSpace(line)), &shown) != nil {
		return ""
	}
	return shown.Address
}

// headTag returns the tag of the head, if the head is a machine of a cloud.
func (c *Cluster) headTag() string { return c.file.Name + "-head" }

// findHead returns the head; nil if the head is a cloud's machine and does not exist.
func (c *Cluster) findHead(ctx context.Context) (*head, error) {
	switch {
	case c.file.Head.Host != "":
		return &head{name: c.file.Head.Host, ssh: []string{"--", c.file.Head.Host}}, nil
	case c.file.Head.Kind == "":
		return &head{name: "this machine"}, nil
	}
	p, m, err := c.headMachine(ctx)
	if err != nil || m == nil {
		return nil, err
	}
	return c.reach(ctx, p, *m, c.kind(c.file.Head.Kind).StartTimeout)
}

// headMachine returns the cloud's machine of the head; nil if the cloud has none.
func (c *Cluster) headMachine(ctx context.Context) (*provider.Cloud, *provider.Machine, error) {
	k := c.kind(c.file.Head.Kind)
	p, err := c.provider(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	cloud := p.(*provider.Cloud)
	ctx, cancel := limited(ctx, k)
	defer cancel()
	all, err := cloud.Cluster(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: cannot list the machines: %w", k.Name, err)
	}
	for _, m := range all {
		if m.Tag == c.headTag() {
			return cloud, &m, nil
		}
	}
	return cloud, nil, nil
}

// makeHead requests the machine of the head from the cloud, and waits until ssh reaches it.
func (c *Cluster) makeHead(ctx context.Context) (*head, error) {
	k := c.kind(c.file.Head.Kind)
	p, err := c.provider(ctx, k)
	if err != nil {
		return nil, err
	}
	c.Say(fmt.Sprintf("%s is asked for the head, %s", k.Provider, c.headTag()))
	cloud := p.(*provider.Cloud)
	if err := os.Remove(cloud.Login().KnownHosts); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // remove the host key of an earlier head
	}
	file := filepath.Join(filepath.Dir(cloud.Login().KnownHosts), "head")
	nonce, err := headNonce(file)
	if err != nil {
		return nil, err
	}
	asked, cancel := limited(ctx, k)
	defer cancel()
	if err := cloud.CreateAgain(asked, c.headTag(), nonce); err != nil {
		return nil, fmt.Errorf("cannot make the head: %w", err)
	}
	h, err := c.reach(ctx, cloud, provider.Machine{}, k.StartTimeout)
	if err != nil {
		return nil, err
	}
	return h, os.Remove(file) // the cloud lists the head now, so its nonce is no longer needed
}

// nonceTime is how long a cloud may omit a new head from its lists.
const nonceTime = 10 * time.Minute

// headNonce returns the nonce that distinguishes this head from earlier heads. It keeps the nonce
// in a file. If golaunch up ends before the cloud lists the head, the next golaunch up takes the
// same nonce, and makes no second head.
func headNonce(file string) (string, error) {
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) < nonceTime {
		if text, err := os.ReadFile(file); err != nil || len(text) == 1+nonceLen {
			return string(text), err
		}
	}
	nonce := "-" + strings.ToLower(rand.Text()[:nonceLen])
	return nonce, os.WriteFile(file, []byte(nonce), 0o600)
}

// nonceLen is the number of random letters in a nonce. With it, the nonce and the longest tag of a
// head fit into EC2's client token, which has at most 64 bytes.
const nonceLen = 12

// reach waits until ssh reaches the machine of the head.
func (c *Cluster) reach(ctx context.Context, p *provider.Cloud, m provider.Machine, limit time.Duration) (*head, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said, trouble := "", error(nil)
	for {
		if addr := c.address(m); m.Running && addr != "" {
			h := &head{name: c.headTag(), ssh: p.Login().Args(m.Tag, addr)}
			if _, trouble = h.run(ctx, nil, "true"); trouble == nil {
				return h, nil
			}
		}
		if m.State != said {
			said = m.State
			c.Say("head: " + said)
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			if trouble == nil {
				trouble = ctx.Err()
			}
			return nil, fmt.Errorf("the head %s cannot be reached within %v (%s): %w", c.headTag(), limit, m.State, trouble)
		}
		all, err := p.Cluster(ctx)
		if err != nil {
			trouble = err
			continue
		}
		for _, found := range all {
			if found.Tag == c.headTag() {
				m = found
			}
		}
	}
}

// address returns the address at which this machine reaches the head.
func (c *Cluster) address(m provider.Machine) string {
	if c.file.Public && m.Public != "" {
		return m.Public
	}
	return m.Private
}

// Exec runs a command line on the head, or a shell if it is empty, and returns its exit code.
func (c *Cluster) Exec(ctx context.Context, line string, stdin *os.File, stdout, stderr io.Writer, terminal bool) (int, error) {
	h, err := c.findHead(ctx)
	if err != nil {
		return 0, err
	}
	var s state
	if h != nil {
		if s, err = h.look(ctx, c.dir()); err != nil {
			return 0, err
		}
	}
	if s.address == "" {
		return 0, fmt.Errorf("cluster %s is not up; golaunch up %s starts it", c.file.Name, c.path)
	}
	bin := filepath.Dir(c.golaunch)
	if h.ssh != nil {
		bin = s.home + "/" + c.dir()
	}
	script := fmt.Sprintf("GOLAUNCH_COORDINATOR=%s PATH=%s:\"$PATH\"; export GOLAUNCH_COORDINATOR PATH; ", s.address, shellword.Quote(bin))
	shell := "shell=sh; ! command -v bash >/dev/null || shell=bash; "
	switch {
	case line != "":
		script += shell + "exec $shell -c " + shellword.Quote(line)
	case h.ssh == nil:
		script += `exec "${SHELL:-sh}"`
	default: // PATH is set in the command, because a login shell reads the profile, which may replace PATH
		script += `SHELL=${SHELL:-sh}; export SHELL; exec "$SHELL" -l -c ` + shellword.Quote(fmt.Sprintf(`exec env PATH=%s:"$PATH" "$SHELL"`, shellword.Quote(bin)))
	}
	cmd := h.command(ctx, terminal, script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err = cmd.Run()
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
