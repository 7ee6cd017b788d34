package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// head starts a Ray cluster on this machine alone, for a scope. The scope ends it by its mark,
// because `ray stop` would end every Ray on this machine. The start of a cluster beside other work
// is not measured.
func (r *run) head(ctx context.Context, s *scope, measured bool) (mark, api string, err error) {
	gcs, err := free()
	dashboard, err2 := free()
	mark, err3 := r.piece()
	if err := errors.Join(err, err2, err3); err != nil {
		return "", "", err
	}
	s.Cleanup(func() {
		if err := kill(mark); err != nil {
			s.Error(err)
		}
	})
	home := os.Getenv("HOME")
	s.Cleanup(func() { _ = os.Setenv("HOME", home) }) // it fails for no name that is legal
	if err := os.Setenv("HOME", r.dir); err != nil {  // a token in ~/.ray would be asked for by some of Ray's processes
		return "", "", err
	}
	argv := []string{
		filepath.Join(r.peers.ray, "ray"), "start", "--head", "--port", gcs, "--num-cpus", "128", "--num-gpus", "0",
		"--dashboard-port", dashboard, "--temp-dir", r.notes("ray"), "--disable-usage-stats",
	}
	took, err := r.execAs(ctx, giveUp, argv, mark)
	if measured || err != nil {
		r.timed(ctx, "cluster-start", record.Ray, argv, took, err)
	}
	if err != nil {
		return "", "", err
	}
	s.Cleanup(func() { _ = os.Unsetenv("RAY_ADDRESS") }) // it fails for no name that is legal
	return mark, "http://127.0.0.1:" + dashboard, os.Setenv("RAY_ADDRESS", "127.0.0.1:"+gcs)
}

// rayTurn measures a Ray cluster like the other launchers. The first sample includes what Ray's
// cluster needs for its first job.
func (r *run) rayTurn(ctx context.Context, s *scope) error {
	if r.peers.ray == "" {
		return nil
	}
	mark, api, err := r.head(ctx, s, true)
	if err != nil {
		return nil //nolint:nilerr // it was noted
	}
	ray, python := filepath.Join(r.peers.ray, "ray"), filepath.Join(r.peers.ray, "python")
	exec := func(ctx context.Context, limit time.Duration, argv []string) (time.Duration, error) {
		return r.execAs(ctx, limit, argv, mark+"-job")
	}
	r.several(ctx, 2, "cluster-submit", record.Ray, []string{ray, "job", "submit", "--address", api, "--", "true"}, exec)
	r.several(ctx, 2, "cluster-status", record.Ray, []string{ray, "status"}, exec)
	r.several(ctx, 2, "cluster-workers", record.Ray, []string{python, filepath.Join(scripts, "ray_workers.py"), workers}, exec)
	r.sample("cluster-memory", record.Ray, []string{"ray start --head"}, memory(marked(mark)))
	if !r.peers.rayTrain {
		return nil
	}
	notes := r.notes("ddp")
	argv := []string{python, filepath.Join(scripts, "ray_ddp.py"), strconv.Itoa(training), notes, r.notes("results")}
	begin := monotonic()
	_, err = exec(ctx, giveUp, argv)
	r.trained(ctx, record.Ray, argv, notes, begin, true, err)
	return nil
}
