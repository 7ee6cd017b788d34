package main

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/session"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/placement"
)

const swarmVariable = "GOLAUNCH_BENCH_SWARM"

func TestMain(m *testing.M) {
	if os.Getenv(swarmVariable) != "" {
		if err := swarm(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// swarm is that many agents without ranks, in one process: it says when all have joined.
func swarm() error {
	var from, to int
	var target string
	if _, err := fmt.Sscan(os.Getenv(swarmVariable), &from, &to, &target); err != nil {
		return err
	}
	token, err := mtls.LoadToken("", os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return err
	}
	var joining errgroup.Group
	joining.SetLimit(128)
	for i := from; i < to; i++ {
		joining.Go(func() error {
			node := placement.Node{Name: fmt.Sprint("a", i), Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
			for gpu := range 8 {
				node.GPUs = append(node.GPUs, placement.GPU{Index: gpu})
			}
			s, err := session.Join(context.Background(), session.Options{
				Target: target, TLS: mtls.Client(token, mtls.Identity{Node: node.Name}), Node: node,
			})
			if err != nil {
				return err
			}
			go func() {
				for range s.Orders() { // there are none
				}
			}()
			return nil
		})
	}
	if err := joining.Wait(); err != nil {
		return err
	}
	fmt.Println("joined")
	select {}
}

// BenchmarkSilence has 12,500 agents (100,000 GPUs) in a cluster, of which a tenth falls silent without a word: their process is
// stopped, and their connections stay. It measures how long the agents take to join, what they cost the coordinator when nothing
// happens, and how long after they fell silent the last of them is found: the lease is 15 s.
func BenchmarkSilence(b *testing.B) {
	const agents, silent, quiet = 12_500, 1_250, 30 * time.Second
	b.Chdir("../..")
	dir := b.TempDir()
	golaunch, _ := build(dir)
	b.Setenv("GOLAUNCH_TOKEN", strings.Repeat("k", 32))
	for range b.N {
		cmd := exec.Command(golaunch, "coordinator", "--listen", "127.0.0.1:29444", "--state-dir", filepath.Join(dir, "state"))
		lines := begin(b, cmd)
		lines.until(b, "the coordinator listens", 1)
		start := time.Now()
		stay := begin(b, swarmOf(silent, agents))
		go_ := begin(b, swarmOf(0, silent))
		stay.until(b, "joined", 1)
		go_.until(b, "joined", 1)
		b.ReportMetric(time.Since(start).Seconds(), "s/join")

		before := cpu(b, cmd.Process.Pid)
		time.Sleep(quiet)
		b.ReportMetric(100*(cpu(b, cmd.Process.Pid)-before).Seconds()/quiet.Seconds(), "%core/idle")
		b.ReportMetric(rss(b, cmd.Process.Pid)/agents, "KiB/agent")

		start = time.Now()
		if err := go_.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			b.Fatal(err)
		}
		lines.until(b, "was lost: no word", silent)
		b.ReportMetric(time.Since(start).Seconds(), "s/lost")
		for _, p := range []*daemonLines{go_, stay, lines} {
			p.end()
		}
	}
}

func swarmOf(from, to int) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d 127.0.0.1:29444", swarmVariable, from, to))
	return cmd
}

// daemonLines is a process whose output is read.
type daemonLines struct {
	cmd   *exec.Cmd
	lines chan string
}

func begin(b *testing.B, cmd *exec.Cmd) *daemonLines {
	b.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	w.Close()
	d := &daemonLines{cmd, make(chan string, 1<<16)}
	go func() {
		defer close(d.lines)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			d.lines <- lines.Text()
		}
	}()
	b.Cleanup(d.end)
	return d
}

// until waits for that many lines with a word.
func (d *daemonLines) until(b *testing.B, word string, n int) {
	b.Helper()
	limit := time.After(5 * time.Minute)
	for n > 0 {
		select {
		case line, ok := <-d.lines:
			if !ok {
				b.Fatalf("%v ended early", d.cmd.Args)
			}
			if strings.Contains(line, word) {
				n--
			}
		case <-limit:
			b.Fatalf("%v: %q is missing %d times", d.cmd.Args, word, n)
		}
	}
}

func (d *daemonLines) end() {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Kill() // it may have ended
		_ = d.cmd.Wait()
	}
}

// cpu is the processor time that a process has used (proc_pid_stat(5): utime and stime, in ticks of 10 ms).
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		_, err = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss is in KiB.
func rss(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	var kib float64
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		b.Fatal(err)
	}
	return kib
}
