package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/launcher"
)

// output says where the ranks' words go.
func (x *translation) output() (err error) {
	out := &launcher.TorchOutput{Prefix: x.template}
	x.o.job.Output.Torch = out
	if out.Prefix == "" {
		out.Prefix = os.Getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	}
	if out.Redirects, err = parseStreams(x.redirects); err != nil {
		return fmt.Errorf("--redirects: %w", err)
	}
	if out.Tee, err = parseStreams(x.tee); err != nil {
		return fmt.Errorf("--tee: %w", err)
	}
	if out.LocalRanks, err = parseLocalRanks(x.filter); err != nil {
		return fmt.Errorf("--local-ranks-filter: %w", err)
	}
	if x.logDir == os.DevNull { // nothing is kept, and all is shown as it is
		*out, x.logDir = launcher.TorchOutput{}, ""
	}
	return x.set("log-dir", x.logDir)
}

// parseLocalRanks reads numbers such as 0,1,2; none is all.
func parseLocalRanks(text string) (ranks []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q: numbers such as 0,1,2", text)
		}
		ranks = append(ranks, n)
	}
	return ranks, nil
}

// parseStreams reads 0 to 3, for all local ranks, or such a number by local rank.
func parseStreams(text string) (map[int]int, error) {
	if oneStream.MatchString(text) {
		n, _ := strconv.Atoi(text)
		return map[int]int{-1: n}, nil
	}
	if !manyStreams.MatchString(text) {
		return nil, fmt.Errorf("%q: 0 (none), 1 (stdout), 2 (stderr), 3 (both), or by local rank such as 0:1,12:3", text)
	}
	streams := map[int]int{}
	for pair := range strings.SplitSeq(text, ",") {
		rank, value, _ := strings.Cut(pair, ":")
		r, _ := strconv.Atoi(rank)
		streams[r], _ = strconv.Atoi(value)
	}
	return streams, nil
}

// torchrun's own patterns, but for local ranks of more than one digit.
var (
	oneStream   = regexp.MustCompile(`^[0-3]$`)
	manyStreams = regexp.MustCompile(`^(\d{1,6}:[0-3],)*\d{1,6}:[0-3]$`)
)

// refused are values that torchrun refuses too, and what would make the job another one.
func (x *translation) refused() error {
	switch {
	case x.maxRestarts < 0:
		return fmt.Errorf("--max-restarts %d: at least 0", x.maxRestarts)
	case !slices.Contains([]string{"spawn", "fork", "forkserver"}, x.start):
		return fmt.Errorf("--start-method %s: spawn, fork or forkserver", x.start)
	case numaBindings[x.numa] == "":
		return fmt.Errorf("--numa-binding %s: node, socket, exclusive or core-complex", x.numa)
	case x.specs != "":
		return fmt.Errorf("--logs-specs %s: a Python entry point, which golaunch cannot load", x.specs)
	}
	return nil
}

// ignored names what the job does as well without.
func (x *translation) ignored() {
	if x.events != "null" {
		x.warn("--event-log-handler is not honoured: events.jsonl in the log directory has the events")
	}
	if x.filters[0]+x.filters[1] != "" {
		x.warn("--duplicate-stdout-filters and --duplicate-stderr-filters are not honoured: grep the log files")
	}
	if x.signals != torchSignals {
		x.warn("--signals-to-handle is not honoured: TERM, INT, HUP and QUIT stop the job, USR1 and USR2 are passed on to the ranks")
	}
}
