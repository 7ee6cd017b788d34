package launcher

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
)

// observe tells what was decided: to the job's observer, or in words.
func (h *here) observe(d Decision) {
	switch {
	case h.job.Output.Observe != nil:
		h.job.Output.Observe(d)
	case h.job.Output.Quiet || d.Reason == "":
	case h.job.Output.JSON:
		h.console.Print(jsonout.Words{Time: d.At, Reason: d.Reason}.Bytes())
	default:
		h.narrator.tell(d)
	}
}

// say tells what this process does while another leads.
func (h *here) say(what string) {
	switch {
	case h.job.Output.Quiet:
	case h.job.Output.JSON:
		h.console.Print(jsonout.Words{Reason: what}.Bytes())
	default:
		h.console.Say("%s", what)
	}
}

// warn tells what went wrong without ending the job.
func (h *here) warn(err error) {
	switch {
	case h.job.Output.Quiet:
	case h.job.Output.JSON:
		h.console.Print(jsonout.Words{Warning: err.Error()}.Bytes())
	default:
		h.console.Say("warning: %v", err)
	}
}

// report says how the job ended, and where its logs are unless they go.
func (h *here) report(r Result, logs string) {
	if h.job.Output.JSON {
		h.console.Print(jsonout.Words{Result: r}.Bytes())
		return
	}
	text := r.Report(h.where(r, logs))
	if r.Cause == nil && h.narrator.told(r.Reason) { // what says of what a job failed stands alone
		_, text, _ = strings.Cut(text, "\n")
	}
	if text != "" {
		h.console.Say("%s", text)
	}
}

// where adds to where the logs are what else has the evidence of a failure.
func (h *here) where(r Result, logs string) string {
	path := h.bundle(r)
	switch {
	case r.Cause == nil || h.dir == nil || logs == "":
		return logs
	case logs != h.dir.Path() && path != "":
		return logs + "; " + path + " has the evidence"
	case logs != h.dir.Path():
		return logs
	case path != "":
		return logs + " (golaunch explain has the rest, " + filepath.Base(path) + " the evidence)"
	}
	return logs + " (golaunch explain has the rest)"
}

// bundle is the evidence of the failure that is on this node, of the failed rank's own if it is here; empty when there is none.
func (h *here) bundle(r Result) string {
	if r.Cause == nil || h.dir == nil || h.dir.Root() == nil {
		return ""
	}
	names, err := h.dir.Root().Glob(fmt.Sprintf("bundle-*-attempt-%d.tar.gz", r.Cause.Attempt))
	if err != nil || len(names) == 0 {
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "bundle-"+r.Cause.Node+"-") })
	return filepath.Join(h.dir.Path(), names[max(i, 0)])
}

// complain says on standard error what a process of a node has failed of, which knows no more of its job than j.
func (j Job) complain(err error) {
	if j.Output.JSON {
		fmt.Fprintf(os.Stderr, "%s", jsonout.Words{Warning: err.Error()}.Bytes())
		return
	}
	fmt.Fprintln(os.Stderr, "golaunch:", err)
}

// Report is the end of the job in words. That of a job that failed has at most five lines of the
// failed rank's last words, and then six: the rank, its node and how it ended; the cause; the line
// that shows it; what to do; the ending, with the exit code; and where the logs are, as logs says.
// That of a job that succeeded has the goodput, if it is worth a line.
func (r Result) Report(logs string) string {
	var b strings.Builder
	if f := r.Cause; f != nil && r.Code != 0 {
		for _, line := range f.lastWords() {
			fmt.Fprintf(&b, "  | %s\n", line)
		}
	}
	b.WriteString(r.Reason)
	add := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n  %-9s %s", what, text)
		}
	}
	if r.Code == 0 {
		if r.Goodput.Notable() {
			add("goodput", r.Goodput.String())
		}
		return b.String()
	}
	if f := r.Cause; f != nil {
		if !strings.Contains(r.Reason, f.Why) {
			add("failed", f.Why)
		}
		v := f.Verdict
		if v.Cause != "" {
			add("cause", v.Cause+": "+v.Title)
		}
		if f.Exit.Spawn == "" { // which the reason has
			add("evidence", v.Quote)
		}
		if v.Cause != "" {
			add("advice", v.Action+": "+v.Remedy)
		}
	}
	add("ending", r.ending())
	add("logs", logs)
	return b.String()
}

// ending is how the job ended, and the goodput of one that had an hour.
func (r Result) ending() string {
	text := fmt.Sprintf("exit code %d", r.Code)
	if r.Ending != "" {
		text = string(r.Ending)
		if advice := again[r.Ending]; advice != "" {
			text += ": " + advice
		}
		text += fmt.Sprintf(" (exit code %d)", r.Code)
	}
	if g := r.Goodput; g != nil && g.Hours >= 1 {
		goodput, _, _ := strings.Cut(g.String(), ";") // status has what cost how much
		text += "; goodput " + goodput
	}
	return text
}

// again is whether to submit a job again that ended so.
var again = map[report.Ending]string{
	report.EndProgram:        "it would fail again",
	report.EndBudget:         "it has failed more often than it may",
	report.EndInfrastructure: "submit it again",
	report.EndPreempted:      "submit it again",
}

// Bounds of the last words in a report: lines, and bytes of each.
const (
	maxLastWords = 5
	maxLastWord  = 300
)

// lastWords are the last lines that say anything of the exception of the rank, or of what it wrote.
func (f *Failure) lastWords() (lines []string) {
	for line := range strings.Lines(cmp.Or(f.Traceback, f.Tail)) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if strings.Trim(line, " ^~") == "" { // Python marks a place by such a line
			continue
		}
		if len(line) > maxLastWord {
			line = strings.ToValidUTF8(line[:maxLastWord], "") + "..."
		}
		lines = append(lines, line)
	}
	return lines[max(0, len(lines)-maxLastWords):]
}
