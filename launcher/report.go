package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
func (r reporter) report(result report.Result, logs string) {
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
func (l *localRun) evidence(r report.Result, logs string) string {
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
func (l *localRun) bundle(r report.Result) string {
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
