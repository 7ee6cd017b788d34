package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

const (
	// scripts has the ranks' programs in Python.
	scripts = "tools/bench/testdata"
	// training is the number of ranks that train.
	training = 4
	// defaults is how often torchrun runs with its defaults: with torch 2.15 its second attempt
	// fails.
	defaults = 2
)

// rank is a command line that trains, for the ranks of a launcher. restarts says that it survives
// the death of one rank.
type rank struct {
	peer     string
	argv     func(python, script, notes string) []string
	restarts bool
}

func (r *run) trainers() []rank {
	ours := func(preload ...string) func(python, script, notes string) []string {
		return func(python, script, notes string) []string {
			argv := append([]string{r.golaunch, "--quiet", "--backoff", "0s", "--procs-per-node", strconv.Itoa(training)}, preload...)
			return append(argv, "--", python, script, notes, "restart")
		}
	}
	torchrun := func(env ...string) func(python, script, notes string) []string {
		return func(_, script, notes string) []string {
			argv := append(env, r.peers.torchrun, "--standalone", "--max-restarts", "1", "--nproc-per-node", strconv.Itoa(training))
			return append(argv, script, notes, "restart")
		}
	}
	all := []rank{
		{record.Golaunch, ours(), true},
		{record.GolaunchTorch, ours("--preload", "torch"), true},
		{record.GolaunchAuto, ours("--preload", "auto"), true},
		{record.Torchrun, torchrun("env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), true},
		{record.TorchrunDefault, torchrun(), true},
	}
	if r.peers.mpirun {
		all = append(all, rank{record.Mpirun, func(python, script, notes string) []string {
			argv := []string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(training)}
			port, _ := free() // port 0 fails with an error
			return append(argv, "-x", "MASTER_ADDR=127.0.0.1", "-x", "MASTER_PORT="+port, python, script, notes)
		}, false})
	}
	return all
}

// trains times the start of ranks that train, and the start of the next attempt after one of them
// has died.
func (r *run) trains(ctx context.Context, round int) {
	for _, t := range r.trainers() {
		if t.peer == record.TorchrunDefault && round >= defaults {
			continue
		}
		notes := r.notes("ddp")
		argv := t.argv(r.peers.python, filepath.Join(scripts, "ddp.py"), notes)
		begin := monotonic()
		_, err := r.exec(ctx, giveUp, argv)
		r.trained(ctx, t.peer, argv, notes, begin, t.restarts, err)
	}
}

func (r *run) notes(name string) string {
	r.pieces++
	return filepath.Join(r.dir, fmt.Sprintf("%s-%d", name, r.pieces))
}

// trained reads the notes of ranks that have trained. If these are complete, it does not matter how
// the ranks ended.
func (r *run) trained(ctx context.Context, peer string, argv []string, notes string, begin int64, restarts bool, err error) {
	n := readNotes(notes)
	argv = strings.Fields(strings.ReplaceAll(strings.Join(argv, " "), notes, "NOTES"))
	first := n["0 step"]
	if len(first) < training {
		r.failed(ctx, "ddp-start", peer, argv, errors.Join(fmt.Errorf("%d of %d ranks noted a first step", len(first), training), err))
		return
	}
	r.sample("ddp-start", peer, argv, float64(last(first)-begin)/float64(time.Millisecond))
	if m := n["0 memory"]; len(m) == 1 {
		r.sample("ddp-memory", peer, argv, float64(m[0])*1024)
	}
	if !restarts {
		return
	}
	if again := n["1 step"]; len(again) < training || len(n["0 death"]) != 1 {
		r.failed(ctx, "ddp-restart", peer, argv, errors.Join(fmt.Errorf("%d of %d ranks noted a step of the next attempt", len(again), training), err))
		return
	}
	r.sample("ddp-restart", peer, argv, float64(last(n["1 step"])-n["0 death"][0])/float64(time.Millisecond))
}

// readNotes returns the values of all notes, by attempt and by what was noted.
func readNotes(file string) map[string][]int64 {
	data, _ := os.ReadFile(file) // without the file there are no notes
	notes := map[string][]int64{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if value, err := strconv.ParseInt(f[len(f)-1], 10, 64); err == nil && len(f) == 3 {
			notes[f[0]+" "+f[1]] = append(notes[f[0]+" "+f[1]], value)
		}
	}
	return notes
}

func last(times []int64) (latest int64) {
	for _, t := range times {
		latest = max(latest, t)
	}
	return latest
}
