// Bench measures golaunch against its peers on this machine: all launchers in turn, in one run.
//
//	go run -C tools/bench . -python PYTHON -ray DIRECTORY
//
// It needs cc, and compares golaunch with the peers that this machine has: mpirun, Slurm, torchrun
// (in the directory of a Python with torch) and Ray (by the directory of its commands). It names
// each missing peer, and a way to add it. All samples go to a file, from which tools/bench/plot
// makes the plots and tables of the documents. When it ends, also by ^C, it has ended everything
// that it started.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// section is a part of the run. It has a number of rounds, and a limit after which no further round
// begins.
type section struct {
	name   string
	rounds int
	limit  time.Duration
	run    func(r *run, ctx context.Context, rounds func(round func(n int) error) error) error
}

// The sections take 29 minutes at most, apart from their last rounds; on an idle machine with two
// cores they take less. The last section takes longest. On a busy machine, this section loses
// rounds, and the others do not.
var sections = []section{
	{"baseline", 20, 3 * time.Minute, (*run).compare},
	{"launch", 15, 4 * time.Minute, (*run).launches},
	{"hangs", 10, 90 * time.Second, (*run).hangs},
	{"restart", 10, 2 * time.Minute, (*run).restarts},
	{"orphans", 2, 90 * time.Second, (*run).orphans},
	{"store", 5, 150 * time.Second, (*run).stores},
	{"names", 3, 4 * time.Minute, (*run).names},
	{"clusters", 6, 9*time.Minute + 30*time.Second, (*run).turns},
}

func main() {
	out := flag.String("out", "docs/performance/peers.json", "file for all samples")
	python := flag.String("python", cmp.Or(os.Getenv("GOLAUNCH_TEST_PYTHON"), "python3"), "a Python with torch")
	ray := flag.String("ray", "", "the bin directory of a virtual environment with Ray")
	limit := flag.Duration("limit", 35*time.Minute, "when the run ends at the latest")
	most := flag.Int("rounds", 0, "rounds of each section at most, for a run in a hurry (0: as many as each has)")
	only := flag.String("only", "", "sections to run, with commas between them (all); what the file has of others stays")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, *out, *python, *ray, *only, *limit, *most)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, out, python, ray, only string, limit time.Duration, most int) (err error) {
	if err := record.ChangeToRoot(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "glbench-") // a short path, for Ray's sockets below it
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("%s=%d", runMark, os.Getpid())
	defer func() { err = errors.Join(err, kill(mark), os.RemoveAll(dir)) }()
	if err := environment(dir); err != nil {
		return err
	}
	r := &run{dir: dir, rec: &record.Record{FormatVersion: record.Version, Began: time.Now().UTC().Truncate(time.Second), Machine: machine(), Skipped: []record.Skipped{}}}
	r.find(ctx, python, ray)
	if r.golaunch, r.rank, err = build(dir); err != nil {
		return err
	}
	begin, limited := time.Now(), ctx
	if limit > 0 {
		c, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limited = c
	}
	all, stolen := ticks()
	for _, s := range sections {
		if only != "" && !slices.Contains(strings.Split(only, ","), s.name) {
			continue
		}
		if most > 0 {
			s.rounds = min(s.rounds, most)
		}
		if err := r.section(limited, s, begin); err != nil && ctx.Err() == nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("the limit of %v was over", limit)
			}
			r.skip(s.name, "the rest of it", r.shown([]string{err.Error()}))
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing was written")
	}
	allNow, stolenNow := ticks()
	r.rec.Machine.Stolen = (stolenNow - stolen) / (allNow - all)
	r.rec.TookSeconds = time.Since(begin).Round(time.Second).Seconds()
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil { //nolint:gosec // documents
		return err
	}
	fmt.Printf("wrote %s after %v\n", out, time.Since(begin).Round(time.Second))
	if info, err := os.Stat(out); only != "" && err == nil && info.Size() > 0 {
		before, err := record.Read(out)
		if err != nil {
			return err
		}
		before.Renew(r.rec)
		r.rec = before
	}
	return r.rec.Write(out)
}

// environment is the same for all peers. It does not depend on this user's files on this machine,
// nor on this directory.
func environment(dir string) error {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	for name, value := range map[string]string{
		runMark: fmt.Sprint(os.Getpid()), "GOLAUNCH_COORDINATOR": "none", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0",
		"XDG_CACHE_HOME": filepath.Join(dir, "cache"), "TMPDIR": dir,
		"GOCACHE": strings.TrimSpace(string(cache)),
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// section runs a section's rounds and reports progress.
func (r *run) section(ctx context.Context, s section, begin time.Time) error {
	began, made := time.Now(), 0
	err := s.run(r, ctx, func(round func(n int) error) error {
		for ; made < s.rounds && time.Since(began) < s.limit; made++ {
			fmt.Printf("[%v] %s: round %d of %d\n", time.Since(begin).Round(time.Second), s.name, made+1, s.rounds)
			if err := round(made); err != nil {
				return err
			}
		}
		return nil
	})
	r.rec.Sections = append(r.rec.Sections, record.Section{
		Name: s.name, Rounds: made, TookSeconds: time.Since(began).Round(time.Second).Seconds(), Load: load(),
	})
	return err
}

func build(dir string) (golaunch, rank string, err error) {
	golaunch, rank = filepath.Join(dir, "golaunch"), filepath.Join(dir, "rank")
	for _, argv := range [][]string{
		{"go", "build", "-trimpath", "-ldflags=-s -w -extldflags=-Wl,-z,lazy", "-o", golaunch, "./cmd/golaunch"}, // builds as make build does
		{"cc", "-O2", "-static", "-o", rank, filepath.Join(scripts, "rank.c")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return golaunch, rank, nil
}
