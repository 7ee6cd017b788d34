package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// A torchRun is one run of a case, by golaunch or by torchrun.
type torchRun struct {
	*testing.T
	c     *torchCase
	torch *torch
	real  bool
	dir   string
	port  string
	nodes []*torchNode
}

// A torchNode is one command of a run.
type torchNode struct {
	r        *torchRun
	out, err string
	golaunch *process // nil for torchrun, which has a number and an end
	id       int
	end      chan int
}

// run runs a case.
func (c *torchCase) run(t *testing.T, o *torch, real bool) torchAnswer {
	t.Helper()
	r := &torchRun{T: t, c: c, torch: o, real: real, dir: t.TempDir(), port: fmt.Sprint(nettest.Port(t))}
	if err := os.CopyFS(r.dir, os.DirFS(torchPrograms)); err != nil {
		t.Fatal(err)
	}
	if c.do != nil {
		c.do(r)
	} else if len(c.nodes) == 0 {
		r.start("")
	}
	for _, n := range c.nodes {
		r.start(n)
	}
	see := (*torchRun).shown
	if c.see != nil {
		see = c.see
	}
	return torchAnswer{Shows: strings.ReplaceAll(see(r), r.port, "PORT"), Says: r.nodes[0].errors()}
}

// start runs the command of one more node. The node's own arguments come first.
func (r *torchRun) start(own string) *torchNode {
	r.Helper()
	name := filepath.Join(r.dir, fmt.Sprint("node-", len(r.nodes)))
	n := &torchNode{r: r, out: name + ".out", err: name + ".err", end: make(chan int, 1)}
	r.nodes = append(r.nodes, n)
	args := append(strings.Fields(own), r.c.args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$PORT", r.port)
	}
	env := append([]string{"HOME=" + r.dir, "OF_THE_CALLER=1", "CUDA_VISIBLE_DEVICES="}, r.torch.env...)
	for _, e := range r.c.env {
		env = append(env, strings.ReplaceAll(e, "$DIR", r.dir))
	}
	if r.real {
		r.torchrun(n, args, append(env, "TMPDIR="+r.dir, "PET_LOCAL_ADDR=localhost"))
		return n
	}
	link, err := exec.LookPath("torchrun")
	if err != nil {
		r.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Dir = r.dir
	file, err := os.Create(n.out)
	if err != nil {
		r.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout = file
	n.golaunch = start(r.T, cmd, append(env, "PYTHON_EXEC="+r.torch.python)...)
	return n
}

func (r *torchRun) torchrun(n *torchNode, args, env []string) {
	r.Helper()
	all := map[string]string{}
	for _, e := range append(os.Environ(), env...) {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	var err error
	if n.id, err = r.torch.run(order{Module: r.c.module, Dir: r.dir, Out: n.out, Err: n.err, Env: all, Args: args}, n.end); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("torchrun %q:\n%s", args, n.errors())
		}
	})
}

// code waits for the end of the command.
func (n *torchNode) code() int {
	n.r.Helper()
	if n.golaunch != nil {
		code, _ := n.golaunch.wait()
		return code
	}
	select {
	case code := <-n.end:
		n.end <- code
		return code
	case <-time.After(patience):
		n.r.Fatalf("torchrun does not end:\n%s", n.errors())
		return 0
	}
}

// result is the command's result, in one word.
func (n *torchNode) result() string {
	n.r.Helper()
	if n.code() == 0 {
		return "succeeds"
	}
	return "fails"
}

func (n *torchNode) signal(sig syscall.Signal) {
	n.r.Helper()
	if n.golaunch != nil {
		n.golaunch.signal(sig)
	} else if err := n.r.torch.signal(n.id, sig); err != nil {
		n.r.Fatal(err)
	}
}

// errors returns the standard error so far.
func (n *torchNode) errors() string {
	n.r.Helper()
	if n.golaunch != nil {
		text, _ := n.golaunch.out.read()
		return text
	}
	return n.r.read(n.err)
}

func (r *torchRun) read(name string) string {
	r.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.dir, name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		r.Error(err)
	}
	return string(text)
}

// files returns the contents of the files that match a pattern.
func (r *torchRun) files(pattern string) (text string) {
	r.Helper()
	names, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(names) == 0 {
		return "no " + pattern + "\n"
	}
	for _, name := range names {
		text += r.read(name)
	}
	return text
}

// printed returns the output of all commands, when they have ended.
func (r *torchRun) printed() (text string) {
	r.Helper()
	for _, n := range r.nodes {
		n.code()
		text += r.read(n.out)
	}
	return text
}

// shown returns how the commands end, and their lines of output, in order.
func (r *torchRun) shown() string {
	r.Helper()
	var ends []string
	for _, n := range r.nodes {
		ends = append(ends, n.result())
	}
	return shows(strings.Join(slices.Compact(ends), ", "), r.printed())
}

// shows returns lines, in order, after a first line.
func shows(first, lines string) string {
	return first + "\n" + strings.Join(slices.Sorted(strings.Lines(lines)), "")
}

// A meeting is a named pipe: ranks write a line to it, and then wait forever.
type meeting struct {
	r    *torchRun
	pipe *os.File
}

// meets makes a pipe at which the ranks meet.
func (r *torchRun) meets(name string) *meeting {
	r.Helper()
	pipe, err := os.OpenFile(r.fifo(name), os.O_RDWR, 0)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { pipe.Close() })
	return &meeting{r, pipe}
}

// wait returns the next lines, one line of each of a number of ranks.
func (m *meeting) wait(ranks int) (lines []string) {
	m.r.Helper()
	if err := m.pipe.SetReadDeadline(time.Now().Add(patience)); err != nil {
		m.r.Fatal(err)
	}
	var text strings.Builder
	buffer := make([]byte, 1<<10)
	for strings.Count(text.String(), "\n") < ranks {
		n, err := m.pipe.Read(buffer)
		if err != nil {
			m.r.Fatalf("%d ranks are not up, only: %q (%v)", ranks, text.String(), err)
		}
		text.Write(buffer[:n])
	}
	return strings.Fields(text.String())
}

// fifo makes a named pipe.
func (r *torchRun) fifo(name string) string {
	r.Helper()
	name = filepath.Join(r.dir, name)
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		r.Fatal(err)
	}
	return name
}
