package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// workers is the number of workers that are placed together on a cluster.
const workers = "8"

// turns gives each launcher a turn of its own for all its work with clusters and torch, so that no
// two clusters run at a time.
func (r *run) turns(ctx context.Context, rounds func(round func(n int) error) error) error {
	all := []func(context.Context, *scope) error{r.golaunchTurn, r.slurmTurn, r.rayTurn}
	learned := false
	return rounds(func(n int) error {
		if r.peers.python != "" {
			if !learned { // a first job teaches --preload auto which modules to import
				argv := r.trainers()[2].argv(r.peers.python, filepath.Join(scripts, "ddp.py"), r.notes("learn"))
				if _, err := r.exec(ctx, giveUp, argv); err != nil {
					return fmt.Errorf("%s: %w", r.shown(argv), err)
				}
				learned = true
			}
			r.trains(ctx, n)
		}
		for i := range all { // each round begins with another launcher
			err := within(ctx, func(s *scope) error { return all[(i+n)%len(all)](ctx, s) })
			if err := errors.Join(err, ctx.Err()); err != nil {
				return err
			}
		}
		return nil
	})
}

// several times commands.
func (r *run) several(ctx context.Context, times int, work, peer string, argv []string, exec func(context.Context, time.Duration, []string) (time.Duration, error)) {
	for range times {
		took, err := exec(ctx, giveUp, argv)
		r.timed(ctx, work, peer, argv, took, err)
	}
}

func (r *run) golaunchTurn(ctx context.Context, s *scope) error {
	mark, err := r.piece()
	if err != nil {
		return err
	}
	begin := time.Now()
	words, err := r.golaunchCluster(s)
	if err != nil {
		return err
	}
	const daemons = "golaunch coordinator --listen HOST:PORT, golaunch agent --coordinator HOST:PORT"
	r.sample("cluster-start", record.Golaunch, []string{daemons}, milliseconds(time.Since(begin)))
	r.several(ctx, 3, "cluster-status", record.Golaunch, words("status"), r.exec)
	r.several(ctx, 3, "cluster-submit", record.Golaunch, words("run", "--quiet", "--", "true"), r.exec)
	r.several(ctx, 3, "cluster-workers", record.Golaunch, words("run", "--quiet", "--procs-per-node", workers, "--", r.rank, "noop"), r.exec)
	r.sample("cluster-memory", record.Golaunch, []string{daemons}, memory(marked(mark)))
	return nil
}

// golaunchCluster starts a coordinator and an agent. It returns a function that makes a command for
// them from a verb and its arguments.
func (r *run) golaunchCluster(s *scope) (command func(words ...string) []string, err error) {
	port, err := free()
	if err != nil {
		return nil, err
	}
	dir := r.notes("cluster")
	at, token := "127.0.0.1:"+port, filepath.Join(r.dir, "token")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600)); err != nil {
		return nil, err
	}
	coordinator := []string{r.golaunch, "coordinator", "--listen", at, "--state-dir", filepath.Join(dir, "state"), "--token-file", token}
	if err := r.daemon(s, "listens", coordinator); err != nil {
		return nil, err
	}
	agent := []string{
		r.golaunch, "agent", "--coordinator", at, "--name", "n1", "--token-file", token, "--log-dir", filepath.Join(dir, "logs"),
	}
	if !r.rootful {
		agent = append(agent, "--allow-run-as-root")
	}
	if err := r.daemon(s, "in the cluster", agent); err != nil {
		return nil, err
	}
	return func(words ...string) []string {
		return append([]string{r.golaunch, words[0], "--coordinator", at, "--token-file", token}, words[1:]...)
	}, nil
}

// daemon starts a command and waits until it prints a word on its standard error. The scope ends it
// in order.
func (r *run) daemon(s *scope, word string, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	words, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)                          // the daemon may have ended
		end := time.AfterFunc(ending, func() { _ = cmd.Process.Kill() }) // it may end at this moment
		defer end.Stop()
		_ = cmd.Wait() // the daemon was told to end
	})
	said := make(chan bool, 1)
	go func() {
		defer close(said)
		lines := bufio.NewScanner(words)
		for lines.Scan() {
			if strings.Contains(lines.Text(), word) {
				said <- true
				_, _ = io.Copy(io.Discard, words) // until the daemon ends
			}
		}
	}()
	select {
	case ok := <-said:
		if !ok {
			return fmt.Errorf("%s ended and did not say %q", r.shown(argv), word)
		}
	case <-time.After(time.Minute):
		return fmt.Errorf("%s has not said %q for a minute", r.shown(argv), word)
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	return nil
}

func (r *run) slurmTurn(ctx context.Context, s *scope) error {
	if !r.peers.slurm {
		return nil
	}
	mark, err := r.piece()
	if err != nil {
		return err
	}
	begin := time.Now()
	_, sh, err := r.slurm(s)
	if err != nil {
		return err
	}
	const daemons = "munged, slurmctld -D and slurmd -D in network namespaces that are made first"
	r.sample("cluster-start", record.Srun, []string{daemons}, milliseconds(time.Since(begin)))
	run := func(ctx context.Context, limit time.Duration, argv []string) (time.Duration, error) {
		return sh.run(ctx, limit, strings.Join(argv, " "))
	}
	r.several(ctx, 3, "cluster-status", record.Srun, []string{"sinfo"}, run)
	r.several(ctx, 3, "cluster-submit", record.Srun, []string{"srun", "-n1", "true"}, run)
	r.several(ctx, 3, "cluster-workers", record.Srun, []string{"srun", "-n" + workers, r.rank, "noop"}, run)
	r.sample("cluster-memory", record.Srun, []string{daemons}, memory(marked(mark)))
	if r.peers.python == "" {
		return nil
	}
	notes := r.notes("ddp")
	argv := []string{
		"env", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "srun", "-n" + strconv.Itoa(training), r.peers.python, filepath.Join(scripts, "ddp.py"), notes,
	}
	at := monotonic()
	_, err = run(ctx, giveUp, argv)
	r.trained(ctx, record.Srun, argv, notes, at, false, err)
	return nil
}
