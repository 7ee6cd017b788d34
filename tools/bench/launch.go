package main

import (
	"context"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/tools/bench/record"
)

const (
	// nap is the time that a rank in mode nap lives.
	nap = 100 * time.Millisecond
	// hung is the time after which a launch counts as a launch that does not end.
	hung = 20 * time.Second
)

// slurm starts a Slurm of one node for a scope and opens a shell on its head; nil if there is none.
func (r *run) slurm(s *scope) (*slurmtest.Cluster, *shell, error) {
	if !r.peers.slurm {
		return nil, nil, nil
	}
	c := slurmtest.Start(s, slurmtest.Options{CPUs: 128})
	sh, err := open(s, c.Command("sh"), r.dir)
	return c, sh, err
}

// launches times jobs of ranks that do nothing, from the command to its exit. The ranks live for
// 100 ms, which is subtracted: if they end at once, mpirun sometimes hangs.
func (r *run) launches(ctx context.Context, rounds func(round func(n int) error) error) error {
	return within(ctx, func(s *scope) error {
		_, sh, err := r.slurm(s)
		if err != nil {
			return err
		}
		all := r.launchers(sh)
		return rounds(func(int) error {
			for _, n := range []int{1, 8, 32, 128} {
				for _, l := range all {
					argv := l.argv(n, r.rank, "nap")
					took, err := l.exec(ctx, giveUp, argv)
					r.timed(ctx, fmt.Sprintf("launch-%d", n), l.name, argv, took-nap, err)
				}
			}
			return ctx.Err()
		})
	})
}

// hangs launches jobs of 32 ranks that end at once, which not every launcher expects. A sample is 1
// if a launch did not end well and in time, and 0 otherwise.
func (r *run) hangs(ctx context.Context, rounds func(round func(n int) error) error) error {
	return within(ctx, func(s *scope) error {
		_, sh, err := r.slurm(s)
		if err != nil {
			return err
		}
		times := map[string]int{record.Golaunch: 30, record.Srun: 5, record.Mpirun: 1, record.Torchrun: 1}
		all := r.launchers(sh)
		return rounds(func(int) error {
			for _, l := range all {
				argv := l.argv(32, r.rank, "noop")
				for range times[l.name] {
					_, err := l.exec(ctx, hung, argv)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					r.sample("hangs-32", l.name, argv, map[bool]float64{true: 1}[err != nil])
				}
			}
			return nil
		})
	})
}
