// Package postmortem explains the failure of a job from the logs of its ranks. It gives the verdict
// on each rank, the root cause first.
package postmortem

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// NoRank is the rank of a log that is not known to belong to one rank.
const NoRank = -1

// InputError is an error in a file that the caller has named and must change.
type InputError struct{ err error }

func (e *InputError) Error() string { return e.err.Error() }
func (e *InputError) Unwrap() error { return e.err }

// Judged is the verdict on one rank.
type Judged struct {
	report.Verdict
	// Rank is NoRank if unknown, and Node is empty if unknown. Attempt counts from 0.
	Node          string
	Rank, Attempt int
	// File is the file that has the decisive line; it is empty if no line was decisive.
	File string
	// Run is the newest run, if the caller named a directory of several runs; empty otherwise.
	Run string
	// At is the time at which the rank ended, if that is known.
	At time.Time
	// Decided says that the verdict is the coordinator's, from the job's record.
	Decided bool
	// Words are the rank's exception, or its last output, if the record has them.
	Words string
}

// ReadRules reads a file of failure rules, for --failure-rules, and also returns its text; see
// docs/failures.md. An empty path means no rules.
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

// Judge judges each file. A directory must be the directory of a job in its --log-dir, or contain
// several such directories: then the directory that was written last counts. Judge judges every
// rank of the last attempt that failed there. Code is the exit code of ranks whose exit code is not
// known otherwise, or -1. The root cause comes first. It is the coordinator's decision, if the
// directory has a record of it and the caller gives no rules. Otherwise it is the first rank, by
// the known times, whose failure is no echo.
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

// class is -1 for the root cause by the coordinator's decision, 0 for a possible root cause, and 2
// for an echo. The coordinator takes the first failure that is not an echo, whether or not a rule
// recognizes it. A failure that has no time and that no rule recognizes comes after all other
// possible root causes, with class 1.
func (j Judged) class() int {
	switch {
	case j.Decided:
		return -1
	case j.Victim:
		return 2
	case j.Cause == verdict.Unknown && j.At.IsZero():
		return 1
	}
	return 0
}

func judgeFile(path string, code int, rules []verdict.Rule) ([]Judged, error) {
	j, err := judge(report.Failure{Rank: NoRank, Exit: report.Exit{Code: code}}, rules, path)
	return []Judged{j}, err
}

// judge judges by the facts that the coordinator knew about a failure. If that verdict quotes
// nothing, judge also reads the ends of the rank's logs, which have more than the last lines. The
// first log with a verdict decides.
func judge(f report.Failure, rules []verdict.Rule, files ...string) (Judged, error) {
	j := judged(f)
	j.Verdict = verdict.Judge(f, rules...)
	if j.Quote != "" {
		return j, j.locate(files)
	}
	for _, file := range files {
		tail, skipped, err := lastOf(file)
		if errors.Is(err, fs.ErrNotExist) && f.Rank != NoRank {
			continue // a rank's log is made at its first byte
		}
		if err != nil {
			return j, err
		}
		f.Tail = tail
		if v := verdict.Judge(f, rules...); v.Quote != "" {
			if j.Verdict = v; v.From == report.FromTail {
				j.File, j.Line = file, v.Line+skipped
			}
			return j, nil
		}
	}
	return j, nil
}

func judged(f report.Failure) Judged {
	return Judged{Verdict: f.Verdict, Node: f.Node, Rank: f.Rank, Attempt: f.Attempt, At: f.At, Words: cmp.Or(f.Traceback, f.Tail)}
}

// locate finds the decisive line in the rank's logs.
func (j *Judged) locate(files []string) error {
	if j.From != report.FromTail {
		return nil
	}
	for _, file := range files {
		tail, skipped, err := lastOf(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if at := strings.LastIndex(tail, strings.TrimSuffix(j.Quote, "...")); at >= 0 {
			j.File, j.Line = file, skipped+strings.Count(tail[:at], "\n")+1
			return nil
		}
	}
	return nil
}

// judgeDir judges the ranks of the last attempt that failed: the ranks that failed by themselves
// according to events.jsonl, or, without that file, all ranks that have logs. It does not judge
// again a rank for which the coordinator's verdict is known.
func judgeDir(dir string, code int, rules []verdict.Rule) ([]Judged, error) {
	newest, err := newestRun(dir)
	if err != nil {
		return nil, err
	}
	if newest == "" {
		return judgeRun(dir, code, rules)
	}
	all, err := judgeRun(newest, code, rules)
	if err != nil {
		return nil, fmt.Errorf("its newest run, %s: %w", filepath.Base(newest), err)
	}
	for i := range all {
		all[i].Run = newest
	}
	return all, nil
}

func judgeRun(dir string, code int, rules []verdict.Rule) ([]Judged, error) {
	r, err := readRecords(dir)
	if err != nil {
		return nil, err
	}
	if rules != nil {
		r.decided = nil
	}
	if r.decided == nil && r.unable != nil {
		j, err := judge(*r.unable, rules) // the rank has left no logs
		return []Judged{j}, err
	}
	if len(r.failed) == 0 && r.decided == nil {
		if r.failed, err = listRanks(dir, code); err != nil {
			return nil, err
		}
	}
	var all []Judged
	if f := r.decided; f != nil {
		j := judged(*f)
		j.Decided = true
		if err := j.locate(logsOf(dir, f.Attempt, f.Rank)); err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	for _, f := range r.failed {
		if r.decided != nil && f.Rank == r.decided.Rank {
			continue
		}
		j, err := judge(f, rules, logsOf(dir, f.Attempt, f.Rank)...)
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
