// Package reporter reports the progress and the end of a job to people, or to programs.
package reporter

import (
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
)

// Reporter prints on a console, in words or as JSON lines.
type Reporter struct {
	*console.Console
	// JSON prints JSON lines; Quiet prints nothing but the result as JSON.
	JSON, Quiet bool

	narrator narrator
}

// New returns a reporter that prints on a console.
func New(c *console.Console, json, quiet bool) *Reporter {
	return &Reporter{Console: c, JSON: json, Quiet: quiet, narrator: narrator{say: c.Say}}
}

// Decision prints a decision. In words, it prints news at once, and other decisions only if their
// state lasts.
func (r *Reporter) Decision(at time.Time, reason string, news bool) {
	switch {
	case r.Quiet || reason == "":
	case r.JSON:
		r.Print(jsonout.Words{Time: at, Reason: reason}.Bytes())
	default:
		r.narrator.tell(reason, news)
	}
}

// Note prints something that this process does and that is no decision about the job.
func (r *Reporter) Note(what string) {
	switch {
	case r.Quiet:
	case r.JSON:
		r.Print(jsonout.Words{Reason: what}.Bytes())
	default:
		r.Say("%s", what)
	}
}

// Warn prints a problem that does not end the job.
func (r *Reporter) Warn(err error) {
	switch {
	case r.Quiet:
	case r.JSON:
		r.Print(jsonout.Words{Warning: err.Error()}.Bytes())
	default:
		r.Say("warning: %v", err)
	}
}

// Result says how the job ended, and where its logs are.
func (r *Reporter) Result(result report.Result, logs string) {
	if r.JSON {
		r.Print(jsonout.Words{Result: result}.Bytes())
		return
	}
	text := result.Report(logs)
	if result.Cause == nil && r.narrator.told(result.Reason) { // the last printed line has the reason already
		_, text, _ = strings.Cut(text, "\n")
	}
	if text != "" {
		r.Say("%s", visible(text))
	}
}

// visible makes each line of a report safe for a terminal, since some quote what ranks have
// written.
func visible(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = console.Visible(line)
	}
	return strings.Join(lines, "\n")
}

// Settle drops a decision that was not printed yet, since the result follows.
func (r *Reporter) Settle() { r.narrator.end() }
