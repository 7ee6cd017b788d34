// Package postmortem says what the failure of a job means, from the logs that its ranks have left.
// It gives the verdict on each rank, the root cause first.
package postmortem

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// NoRank is the rank of a log that is not known to belong to one rank.
const NoRank = -1

// InputError is about a file that the caller has named and must change.
type InputError struct{ err error }

func (e *InputError) Error() string { return e.err.Error() }
func (e *InputError) Unwrap() error { return e.err }

// Judged is the verdict on one rank.
type Judged struct {
	report.Verdict
	// Rank is NoRank, and Node empty, if they are not known. Attempt counts from 0.
	Node          string
	Rank, Attempt int
	// File has the line that decided; it is empty if none did.
	File string
	// At is when the rank ended, if that is known.
	At time.Time
	// Decided says that the verdict is the coordinator's, from the job's record.
	Decided bool
	// Words are what the rank left of its exception, or wrote last, if the record has that.
	Words string
}

// readTail is how much of the end of a log is judged. maxEvents is how much of a record of events
// is read, which is never longer. Both are in bytes.
const (
	readTail  = 256 << 10
	maxEvents = 64 << 20
)

// ReadRules reads a file of failure rules, for --failure-rules, and also returns its text; see
// docs/failures.md. An empty path has no rules.
func ReadRules(path string) ([]verdict.Rule, string, error) {
	if path == "" {
		return nil, "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", &InputError{fmt.Errorf("failure rules: %w", err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, verdict.MaxFile+1))
	if err != nil {
		return nil, "", fmt.Errorf("read the failure rules: %w", err)
	}
	rules, err := verdict.Parse(path, string(data))
	if err != nil {
		return nil, "", &InputError{fmt.Errorf("failure rules: %w", err)}
	}
	return rules, string(data), nil
}

// Judge judges each file. A directory must be a job's in its --log-dir; Judge judges every rank of
// the last attempt that failed there. Code is the exit code of ranks whose exit code is not known
// otherwise, or -1. The root cause comes first. That is what the coordinator decided, if the
// directory has a record of it and there are no rules to judge by instead. Otherwise it is the
// first rank to end, as far as is known, whose failure is no echo.
func Judge(paths []string, code int, rules []verdict.Rule) ([]Judged, error) {
	var all []Judged
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, &InputError{err}
		}
		read := judgeFile
		if info.IsDir() {
			read = judgeDir
		}
		judged, err := read(path, code, rules)
		if err != nil {
			return nil, fmt.Errorf("judge %s: %w", path, err)
		}
		all = append(all, judged...)
	}
	slices.SortStableFunc(all, before)
	return all, nil
}

// before sorts the root cause first.
func before(a, b Judged) int { return cmp.Or(a.class()-b.class(), a.At.Compare(b.At)) }

// class is -1 for the root cause by the coordinator's decision, 0 for a possible root cause, 1 for
// what says nothing, and 2 for an echo.
func (j Judged) class() int {
	switch {
	case j.Decided:
		return -1
	case j.Victim:
		return 2
	case j.Cause == verdict.Unknown:
		return 1
	}
	return 0
}

func judgeFile(path string, code int, rules []verdict.Rule) ([]Judged, error) {
	x := job.Exited{Rank: NoRank, Exit: report.Exit{Code: code}}
	j, err := judge(x, rules, path)
	return []Judged{j}, err
}

// judge reads the ends of a rank's logs. The first of them that says something decides.
func judge(x job.Exited, rules []verdict.Rule, files ...string) (Judged, error) {
	j := Judged{Node: x.Node, Rank: x.Rank, Attempt: x.Attempt, At: x.At, Words: cmp.Or(x.Traceback, x.Tail)}
	for _, file := range files {
		tail, skipped, err := lastOf(file)
		if errors.Is(err, fs.ErrNotExist) && x.Rank != NoRank {
			continue // a rank's log is made at its first byte
		}
		if err != nil {
			return j, err
		}
		e := x.Evidence()
		e.Tail = tail
		v := verdict.Judge(e, rules...)
		if j.Cause != "" && (v.Cause == verdict.Unknown || v.Quote == "") {
			continue
		}
		if j.Verdict, j.File = v, ""; v.From == report.FromTail {
			j.File, j.Line = file, v.Line+skipped
		}
		if v.Quote != "" {
			return j, nil
		}
	}
	if j.Cause == "" {
		j.Verdict = verdict.Judge(x.Evidence(), rules...)
	}
	return j, nil
}

// lastOf returns the end of a file, from the beginning of a line, and the number of lines before
// it.
func lastOf(path string) (tail string, skipped int, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() {
		return "", 0, errors.New("it is not a plain file")
	}
	var lines counter
	if _, err := io.CopyN(&lines, f, max(0, info.Size()-readTail)); err != nil {
		return "", 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, readTail))
	return string(data), int(lines), err
}

// counter counts the lines that are written to it.
type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

// judgeDir judges the ranks of the last attempt that failed: the ranks that failed by themselves
// according to events.jsonl, or without that file all ranks that have logs. It does not judge again
// what the coordinator decided.
func judgeDir(dir string, code int, rules []verdict.Rule) ([]Judged, error) {
	r, err := readRecords(dir)
	if err != nil {
		return nil, err
	}
	if rules != nil {
		r.decided = nil
	}
	if r.decided == nil && r.unable != nil {
		j, err := judge(*r.unable, rules) // it has left no logs
		return []Judged{j}, err
	}
	if len(r.failed) == 0 && r.decided == nil {
		if r.failed, err = listRanks(dir, code); err != nil {
			return nil, err
		}
	}
	var all []Judged
	if r.decided != nil {
		j, err := decided(dir, *r.decided)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	for _, x := range r.failed {
		if r.decided != nil && x.Rank == r.decided.rank() {
			continue
		}
		j, err := judge(x, rules, logsOf(dir, x.Attempt, x.Rank)...)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	if len(all) == 0 {
		return nil, &InputError{errors.New("no rank has failed there, or it is not a job's log directory")}
	}
	if r.decided == nil {
		r.desert(all)
	}
	return all, nil
}

func logsOf(dir string, attempt, rank int) []string {
	name := filepath.Join(dir, fmt.Sprintf("attempt-%d", attempt), fmt.Sprintf("rank-%d", rank))
	return []string{name + ".stderr.log", name + ".stdout.log"}
}

// decided returns what the coordinator took for the root cause, with the place of the deciding line
// in the logs.
func decided(dir string, f cause) (Judged, error) {
	j := Judged{
		Verdict: f.Verdict, Node: f.Node, Rank: f.rank(), Attempt: f.Attempt, At: f.At, Decided: true, Words: cmp.Or(f.Traceback, f.Tail),
	}
	if f.Verdict.From != report.FromTail {
		return j, nil
	}
	for _, file := range logsOf(dir, f.Attempt, f.rank()) {
		tail, skipped, err := lastOf(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return j, err
		}
		if at := strings.LastIndex(tail, strings.TrimSuffix(f.Verdict.Quote, "...")); at >= 0 {
			j.File, j.Line = file, skipped+strings.Count(tail[:at], "\n")+1
			return j, nil
		}
	}
	return j, nil
}

// listRanks returns the ranks that have logs of the last attempt.
func listRanks(dir string, code int) ([]job.Exited, error) {
	files, err := filepath.Glob(filepath.Join(escape(dir), "attempt-*", "rank-*.std*.log"))
	if err != nil {
		return nil, err
	}
	var last []job.Exited
	for _, file := range files {
		attempt, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "attempt-"))
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), "rank-"), ".")
		rank, err2 := strconv.Atoi(name)
		if err == nil && err2 == nil {
			last = later(last, job.Exited{Attempt: attempt, Rank: rank, Exit: report.Exit{Code: code}})
		}
	}
	slices.SortFunc(last, func(a, b job.Exited) int { return a.Rank - b.Rank })
	return slices.CompactFunc(last, func(a, b job.Exited) bool { return a.Rank == b.Rank }), nil
}

// escape returns a pattern that matches only the path itself.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
