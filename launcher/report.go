package launcher

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
)

// reporter tells people, or programs, how a job goes.
type reporter struct {
	console  *console.Console
	narrator *narrator
	output   Output
}

func newReporter(o Output) reporter {
	console := o.console()
	return reporter{console, &narrator{say: console.Say}, o}
}

// observe tells what was decided: to the job's observer, or in words.
func (r reporter) observe(d Decision) {
	switch {
	case r.output.Observe != nil:
		r.output.Observe(d)
	case r.output.Quiet || d.Reason == "":
	case r.output.JSON:
		r.console.Print(jsonout.Words{Time: d.At, Reason: d.Reason}.Bytes())
	default:
		r.narrator.tell(d)
	}
}

// say tells what this process does while another leads.
func (r reporter) say(what string) {
	switch {
	case r.output.Quiet:
	case r.output.JSON:
		r.console.Print(jsonout.Words{Reason: what}.Bytes())
	default:
		r.console.Say("%s", what)
	}
}

// warn tells what went wrong without ending the job.
func (r reporter) warn(err error) {
	switch {
	case r.output.Quiet:
	case r.output.JSON:
		r.console.Print(jsonout.Words{Warning: err.Error()}.Bytes())
	default:
		r.console.Say("warning: %v", err)
	}
}

// report says how the job ended, and where its logs are.
func (r reporter) report(result Result, logs string) {
	if r.output.JSON {
		r.console.Print(jsonout.Words{Result: result}.Bytes())
		return
	}
	text := result.Report(logs)
	if result.Cause == nil && r.narrator.told(result.Reason) { // the reason was the last line
		_, text, _ = strings.Cut(text, "\n")
	}
	if text != "" {
		r.console.Say("%s", text)
	}
}

// evidence adds to the place of the logs what else shows why the job failed.
func (l *localRun) evidence(r Result, logs string) string {
	if r.Cause == nil || l.files.Dir() == nil || logs == "" {
		return logs
	}
	bundle := l.bundle(r)
	switch here := logs == l.files.Path(); {
	case !here && bundle != "":
		return logs + "; " + bundle + " has the evidence"
	case !here:
		return logs
	case bundle != "":
		return logs + " (golaunch explain has the rest, " + filepath.Base(bundle) + " the evidence)"
	}
	return logs + " (golaunch explain has the rest)"
}

// bundle is the evidence of the failure on this node, and that of the failed rank's node if it is
// here; empty if there is none.
func (l *localRun) bundle(r Result) string {
	dir := l.files.Dir()
	if dir.Root() == nil {
		return ""
	}
	names, err := dir.Root().Glob(fmt.Sprintf("bundle-*-attempt-%d.tar.gz", r.Cause.Attempt))
	if err != nil || len(names) == 0 {
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "bundle-"+r.Cause.Node+"-") })
	return filepath.Join(dir.Path(), names[max(i, 0)])
}

// complain prints why a node's process failed before it could report to anything else.
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
