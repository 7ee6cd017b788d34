package postmortem

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/golaunch/golaunch/launcher/report"
)

// Starts reads how long each phase of each attempt's start took, from the record of a job in its
// log directory. In a directory of several runs, it takes the newest run and returns its name.
func Starts(dir string) (starts []report.Start, run string, err error) {
	if run, err = newestRun(dir); err != nil {
		return nil, "", &InputError{err}
	}
	if run != "" {
		dir = run
	}
	files, err := filepath.Glob(filepath.Join(escape(dir), "events-*.jsonl"))
	for _, file := range append([]string{filepath.Join(dir, "events.jsonl")}, files...) {
		err = errors.Join(err, readEvents(file, func(event string, detail json.RawMessage) error {
			if event != "start" {
				return nil
			}
			var s report.Start
			if err := json.Unmarshal(detail, &s); err != nil {
				return err
			}
			if n := len(starts); n > 0 && starts[n-1].Attempt == s.Attempt {
				starts = starts[:n-1] // the later event knows more
			}
			starts = append(starts, s)
			return nil
		}))
	}
	if err == nil && len(starts) == 0 {
		err = &InputError{fmt.Errorf("%s has no record of a start: no ranks have run, or it is not a job's log directory", dir)}
	}
	return starts, run, err
}
