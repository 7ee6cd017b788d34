package torchrun

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/launcher"
)

// output sets where the ranks' output goes.
func (x *translation) output() (err error) {
	out := &launcher.TorchOutput{Prefix: x.template, ErrorFile: os.Getenv("TORCHELASTIC_ERROR_FILE")}
	x.o.Job.Output.Torch = out
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
	for i, text := range x.filters {
		out.Filters[i] = parseFilters(text)
	}
	if x.logDir == os.DevNull { // no file is kept, and all output is shown unchanged
		*out, x.logDir = launcher.TorchOutput{ErrorFile: out.ErrorFile}, ""
	}
	return x.set("log-dir", x.logDir)
}

// parseLocalRanks parses numbers such as 0,1,2. An empty text means all ranks.
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

// parseFilters parses texts separated by commas. Two commas stand for one comma in a text.
func parseFilters(text string) (filters []string) {
	const comma = "\x00" // no argument of a program contains a NUL
	for part := range strings.SplitSeq(strings.ReplaceAll(text, ",,", comma), ",") {
		if part = strings.ReplaceAll(strings.TrimSpace(part), comma, ","); part != "" {
			filters = append(filters, part)
		}
	}
	return filters
}

// parseStreams parses 0 to 3 for all local ranks, or LOCAL_RANK:NUMBER pairs.
func parseStreams(text string) (map[int]int, error) {
	if oneStream.Get().MatchString(text) {
		n, _ := strconv.Atoi(text)
		return map[int]int{-1: n}, nil
	}
	if !manyStreams.Get().MatchString(text) {
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

// torchrun's own patterns, except that local ranks may have several digits.
var (
	oneStream   = lazyregexp.New(`^[0-3]$`)
	manyStreams = lazyregexp.New(`^(\d{1,6}:[0-3],)*\d{1,6}:[0-3]$`)
)

// refused returns an error for values that torchrun refuses or golaunch cannot honour.
func (x *translation) refused() error {
	switch {
	case x.maxRestarts < 0:
		return fmt.Errorf("--max-restarts %d: at least 0", x.maxRestarts)
	case !slices.Contains([]string{"spawn", "fork", "forkserver"}, x.start):
		return fmt.Errorf("--start-method %s: spawn, fork or forkserver", x.start)
	case numaBindings[x.numa] == "":
		return fmt.Errorf("--numa-binding %s: node, socket, exclusive or core-complex", x.numa)
	case x.specs != "" && x.specs != "default":
		return fmt.Errorf("--logs-specs %s: a Python entry point, which golaunch cannot load", x.specs)
	}
	return nil
}

// ignored warns of flags without effect.
func (x *translation) ignored() {
	if x.events != "null" {
		x.warn("--event-log-handler is not honoured: events.jsonl in the log directory has the events")
	}
	for name := range strings.SplitSeq(x.signals, ",") {
		if unix.SignalNum(strings.TrimSpace(name)) == 0 {
			x.warn("--signals-to-handle: %q is no signal of this system", name)
		}
	}
}

// stops are the signals that stop the job, besides the usual ones.
func (t *torchFlags) stops() (signals []os.Signal) {
	for name := range strings.SplitSeq(t.signals, ",") {
		if s := unix.SignalNum(strings.TrimSpace(name)); s != 0 && !slices.Contains([]syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT}, s) {
			signals = append(signals, s)
		}
	}
	return signals
}
