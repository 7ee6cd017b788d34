package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// baseline is the golaunch of 2026-11-22, the fastest before the features of that week. Later
// versions must not lose its speed.
const baseline = "86d6a46"

const former = record.Golaunch + " " + baseline

// buildBaseline builds the baseline from this repository's history.
func buildBaseline(ctx context.Context, dir string) (golaunch string, err error) {
	tree, golaunch := filepath.Join(dir, "baseline"), filepath.Join(dir, "golaunch-"+baseline)
	line := fmt.Sprintf("mkdir %[1]s && git archive %[2]s | tar -xC %[1]s && cd %[1]s && "+
		"GOFLAGS= go build -trimpath -ldflags='-s -w -extldflags=-Wl,-z,lazy' -o %[3]s ./cmd/golaunch", tree, baseline, golaunch)
	if out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return golaunch, os.RemoveAll(tree)
}

// compare measures golaunch, its baseline and mpirun in turn, and prints the medians and their
// ratios. No document shows these figures.
func (r *run) compare(ctx context.Context, rounds func(round func(n int) error) error) error {
	binary, err := buildBaseline(ctx, r.dir)
	if err != nil {
		r.skip(former, "baseline", "it cannot be built: "+err.Error())
		return nil //nolint:nilerr // it was noted
	}
	c, old := *r, *r
	old.golaunch, old.rootful = binary, true
	c.rec = &record.Record{}
	old.rec = c.rec
	runs := map[string]*run{record.Golaunch: &c, former: &old}
	var all []launcher
	for _, l := range c.launchers(nil) {
		switch l.name {
		case record.Golaunch:
			before := old.launchers(nil)[0]
			before.name = former
			all = append(all, l, before)
		case record.Mpirun:
			all = append(all, l)
		}
	}
	err = rounds(func(int) error {
		for _, n := range []int{1, 8, 64} {
			for _, l := range all {
				argv := l.argv(n, r.rank, "nap")
				took, err := l.exec(ctx, giveUp, argv)
				c.timed(ctx, fmt.Sprintf("a job of %d, ms", n), l.name, argv, took-nap, err)
			}
		}
		for _, l := range all {
			one := runs[l.name]
			if one == nil {
				continue
			}
			notes := r.notes("restart")
			argv := l.argv(8, r.rank, "restart", notes)
			_, err := l.exec(ctx, giveUp, argv)
			took, noted := recovery(notes)
			c.timed(ctx, "restart of 8, ms", l.name, argv, took, errors.Join(err, noted))
			if err := within(ctx, func(s *scope) error { return one.weigh(ctx, s, l) }); err != nil {
				return err
			}
			if err := within(ctx, func(s *scope) error { return one.ask(ctx, s, l.name) }); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	return errors.Join(err, c.print())
}

// weigh notes the memory of a launcher with 8 ranks.
func (r *run) weigh(ctx context.Context, s *scope, l launcher) error {
	program, err := r.copy("weighed")
	if err != nil {
		return err
	}
	argv := l.argv(families, program, "family")
	return r.begin(ctx, s, &job{peer: l.name, program: program, argv: argv, cmd: exec.Command(argv[0], argv[1:]...)})
}

// ask times status on a running cluster.
func (r *run) ask(ctx context.Context, s *scope, name string) error {
	command, err := r.golaunchCluster(s)
	if err != nil {
		return err
	}
	r.several(ctx, 3, "status, ms", name, command("status"), r.exec)
	return nil
}

// print prints the medians and their ratios.
func (r *run) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t%s\tratio\t%s\tratio\t\n", record.Golaunch, baseline, record.Mpirun)
	var works []string
	for _, s := range r.rec.Series {
		if !slices.Contains(works, s.Work) {
			works = append(works, s.Work)
		}
	}
	for _, work := range works {
		now, unit := r.median(work, record.Golaunch), 1.0
		name := work
		if work == "launcher-memory" {
			name, unit = "memory of 8, MiB", 1<<20
		}
		fmt.Fprintf(w, "%s\t%.1f\t", name, now/unit)
		for _, peer := range []string{former, record.Mpirun} {
			if other := r.median(work, peer); other > 0 {
				fmt.Fprintf(w, "%.1f\t%.2f\t", other/unit, now/other)
			} else {
				fmt.Fprint(w, "\t\t")
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// median is the median of a series; 0 if there is none.
func (r *run) median(work, peer string) float64 {
	s := r.rec.Of(work, peer)
	if s == nil || len(s.Samples) == 0 {
		return 0
	}
	_, median, _ := record.Spread(s.Samples)
	return median
}
