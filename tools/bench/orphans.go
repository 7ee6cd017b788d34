package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

const (
	// families is the number of ranks of a job whose launcher dies, and family the number of
	// processes of each of them.
	families, family = 8, 4
	// mourning is the time that the processes left by a launcher may take to end.
	mourning = 10 * time.Second
)

// job is a launcher with its ranks, which run a program of their own.
type job struct {
	peer    string
	program string
	mark    string
	argv    []string
	cmd     *exec.Cmd
}

// orphans counts the processes that are left of a job some time after its launcher was killed, or
// told to end. Each rank has four processes: itself, a child, a process in a session of its own,
// and a process whose parent has ended.
func (r *run) orphans(ctx context.Context, rounds func(round func(n int) error) error) error {
	return rounds(func(int) error {
		for work, signal := range map[string]syscall.Signal{"orphans-kill": syscall.SIGKILL, "orphans-term": syscall.SIGTERM} {
			err := within(ctx, func(s *scope) error { return r.killLaunchers(ctx, s, work, signal) })
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// killLaunchers starts a job with each launcher, and then signals all launchers.
func (r *run) killLaunchers(ctx context.Context, s *scope, work string, signal syscall.Signal) error {
	all, err := r.jobs(ctx, s)
	if err != nil {
		return err
	}
	for _, j := range slices.Clone(all) {
		if err := r.begin(ctx, s, j); err != nil {
			r.failed(ctx, work, j.peer, j.argv, err)
			all = slices.DeleteFunc(all, func(other *job) bool { return other == j })
		}
	}
	for _, j := range all {
		if err := j.cmd.Process.Signal(signal); err != nil {
			return fmt.Errorf("%s: %w", j.peer, err)
		}
	}
	select {
	case <-time.After(mourning):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, j := range all {
		r.sample(work, j.peer, j.argv, float64(len(running(j.program))))
	}
	return nil
}

// jobs are the jobs of all launchers. Ray's job runs on a running cluster.
func (r *run) jobs(ctx context.Context, s *scope) (all []*job, err error) {
	slurm, sh, err := r.slurm(s)
	if err != nil {
		return nil, err
	}
	for _, l := range r.launchers(sh) {
		program, err := r.copy(l.name)
		if err != nil {
			return nil, err
		}
		argv := l.argv(families, program, "family")
		cmd := exec.Command(argv[0], argv[1:]...)
		if l.name == record.Srun {
			cmd = slurm.Command(argv...)
		}
		all = append(all, &job{peer: l.name, program: program, argv: argv, cmd: cmd})
	}
	if r.peers.ray == "" {
		return all, nil
	}
	program, err := r.copy(record.Ray)
	if err != nil {
		return nil, err
	}
	if _, _, err := r.head(ctx, s, false); err != nil {
		return all, nil //nolint:nilerr // it was noted
	}
	argv := []string{filepath.Join(r.peers.ray, "python"), filepath.Join(scripts, "ray_family.py"), strconv.Itoa(families), program, "family"}
	return append(all, &job{peer: record.Ray, program: program, argv: argv, cmd: exec.Command(argv[0], argv[1:]...)}), nil
}

// copy makes a program of its own for a launcher's ranks, which identifies them.
func (r *run) copy(peer string) (string, error) {
	dir := r.notes(peer)
	program := filepath.Join(dir, "rank")
	data, err := os.ReadFile(r.rank)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(program, data, 0o700) //nolint:gosec // it is a program
	}
	return program, err
}

// begin starts a job and waits until all of its processes are there. They end with the scope.
func (r *run) begin(ctx context.Context, s *scope, j *job) (err error) {
	if j.mark, err = r.piece(); err != nil {
		return err
	}
	if j.cmd.Env == nil {
		j.cmd.Env = os.Environ()
	}
	j.cmd.Env = append(j.cmd.Env, j.mark)
	if j.cmd.SysProcAttr == nil {
		j.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	j.cmd.SysProcAttr.Setpgid = true
	if err := j.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- j.cmd.Wait() }()
	s.Cleanup(func() {
		if err := kill(j.mark); err != nil {
			s.Error(err)
		}
		for _, pid := range running(j.program) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}
	})
	limit, again := time.After(giveUp), time.NewTicker(20*time.Millisecond) // there is no event for processes of others
	defer again.Stop()
	for len(running(j.program)) < families*family {
		select {
		case <-again.C:
		case err := <-ended:
			return fmt.Errorf("it ended early: %w", err)
		case <-limit:
			return fmt.Errorf("after %v it has %d of %d processes", giveUp, len(running(j.program)), families*family)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if j.peer != record.Ray { // for Ray, a cluster launches ranks
		r.sample("launcher-memory", j.peer, j.argv, memory(launching(j)))
	}
	return nil
}

// launching are the processes of a launcher: the command's processes that are not ranks, and the
// parents of the ranks.
func launching(j *job) []int {
	ranks := running(j.program)
	launchers := map[int]bool{}
	for _, pid := range marked(j.mark) {
		launchers[pid] = true
	}
	for _, pid := range ranks {
		launchers[parent(pid)] = true
	}
	for _, pid := range append(ranks, 0, 1, os.Getpid()) {
		delete(launchers, pid)
	}
	var pids []int
	for pid := range launchers {
		pids = append(pids, pid)
	}
	return pids
}
