package postmortem

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/launcher/report"
)

// maxEvents bounds the part of a record of events that is read, in bytes. No record is longer.
const maxEvents = 64 << 20

// record is the part of a coordinator's record of a job from which its failure is judged.
type record struct {
	// failed are the failures of the last attempt in which a rank failed. early has, by attempt,
	// the ranks that exited with code 0.
	failed []report.Failure
	early  map[int]*verdict.Early
	// unable is how the first rank of a node would have ended, if the job ended because the node
	// knew that it could not start its ranks.
	unable *report.Failure
	// decided is the root cause with the coordinator's verdict. It is nil if the job has not ended
	// yet, or if its record has no verdict.
	decided *report.Failure
}

// desert makes an early exit the cause of an echo, if no other cause is known.
func (r record) desert(all []Judged) {
	root := slices.MinFunc(all, before)
	v, ok := r.early[root.Attempt].Explains(report.Failure{At: root.At, Verdict: root.Verdict})
	for i := range all {
		if ok && all[i].Rank == root.Rank && all[i].Attempt == root.Attempt {
			all[i].Verdict, all[i].File = v, ""
		}
	}
}

// exitedEarly notes a rank that exited with code 0. After a failure, an exit counts only if it was
// the first such exit by its time, as in the coordinator.
func (r *record) exitedEarly(x job.Exited) {
	if r.early == nil {
		r.early = map[int]*verdict.Early{}
	}
	e := r.early[x.Attempt]
	failing := len(r.failed) > 0 && r.failed[0].Attempt == x.Attempt
	if !failing || e == nil || x.At.Before(e.At) {
		r.early[x.Attempt] = e.And(x.Rank, x.Node, x.At)
	}
}

// readRecords reads events.jsonl. If that file has no decision and another node led the job at its
// end, it reads the record of that node.
func readRecords(dir string) (record, error) {
	first, err := readRecord(filepath.Join(dir, "events.jsonl"))
	if err != nil || first.decided != nil {
		return first, err
	}
	others, err := filepath.Glob(filepath.Join(escape(dir), "events-*.jsonl"))
	if err != nil {
		return first, err
	}
	for _, path := range others {
		if r, err := readRecord(path); err != nil || r.decided != nil {
			return r, err
		}
	}
	return first, nil
}

// readRecord returns an empty record if there is no file.
func readRecord(path string) (r record, err error) {
	err = readEvents(path, r.take)
	return r, err
}

// readEvents calls take for each line of a record, if there is one.
func readEvents(path string, take func(event string, detail json.RawMessage) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for events := json.NewDecoder(io.LimitReader(f, maxEvents)); ; {
		var event struct {
			Event  string          `json:"event"`
			Detail json.RawMessage `json:"detail"`
		}
		if err := events.Decode(&event); err != nil {
			return nil // the end, or half of a line from a killed coordinator
		}
		if err := take(event.Event, event.Detail); err != nil {
			return fmt.Errorf("%s is of another version of golaunch: %w", path, err)
		}
	}
}

// take adds an event. The names of its detail differ from the fields' names only in case, which
// encoding/json ignores. The exception is lived_seconds, which does not matter for a verdict.
func (r *record) take(event string, detail json.RawMessage) error {
	switch event {
	case "prepared", "reached":
		var d struct {
			job.Exited
			Unable report.Exit
		}
		if err := json.Unmarshal(detail, &d); err != nil {
			return err
		}
		if x := d.Exited; !d.Unable.OK() && r.unable == nil {
			x.Rank, x.Exit = NoRank, d.Unable
			r.unable = new(x.Failure(nil))
		}
	case "exited":
		var x job.Exited
		if err := json.Unmarshal(detail, &x); err != nil {
			return err
		}
		if x.Exit.OK() {
			r.exitedEarly(x)
		} else if r.unable == nil {
			r.failed = later(r.failed, x.Failure(nil))
		}
	case "result":
		var d struct{ Cause *report.Failure }
		if err := json.Unmarshal(detail, &d); err != nil {
			return err
		}
		r.end(d.Cause)
	}
	return nil
}

// end takes the root cause of the job, with the coordinator's verdict, or at least the rank of the
// root cause.
func (r *record) end(f *report.Failure) {
	switch {
	case f == nil:
	case f.Verdict.Cause != "":
		r.decided = f
	case r.unable != nil:
		r.unable = f
	}
}

// later adds a failure to the failures of the last attempt. It leaves out a rank that a signal
// ended after another rank had failed, because golaunch stopped that rank.
func later(failed []report.Failure, x report.Failure) []report.Failure {
	switch {
	case x.Exit.OK() || len(failed) > 0 && x.Attempt < failed[0].Attempt:
		return failed
	case len(failed) > 0 && x.Attempt > failed[0].Attempt:
		failed = failed[:0]
	case len(failed) > 0 && !x.Exit.OOM && (x.Exit.Signal == int(unix.SIGTERM) || x.Exit.Signal == int(unix.SIGKILL)):
		return failed
	}
	return append(failed, x)
}
