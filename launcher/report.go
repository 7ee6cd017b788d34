package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/contract"
	"github.com/golaunch/golaunch/internal/verdict"
)

// observe tells what was decided: to the job's observer, or in words.
func (h *here) observe(d Decision) {
	switch {
	case h.job.Output.Observe != nil:
		h.job.Output.Observe(d)
	case h.job.Output.Quiet || d.Reason == "":
	case h.job.Output.JSON:
		h.console.Print(contract.Words{Time: d.At, Reason: d.Reason}.Bytes())
	default:
		h.narrator.tell(d)
	}
}

// say tells what this process does while another leads.
func (h *here) say(what string) {
	switch {
	case h.job.Output.Quiet:
	case h.job.Output.JSON:
		h.console.Print(contract.Words{Reason: what}.Bytes())
	default:
		h.console.Say("%s", what)
	}
}

// warn tells what went wrong without ending the job.
func (h *here) warn(err error) {
	switch {
	case h.job.Output.Quiet:
	case h.job.Output.JSON:
		h.console.Print(contract.Words{Warning: err.Error()}.Bytes())
	default:
		h.console.Say("warning: %v", err)
	}
}

// report says how the job ended, and where its logs are unless they go.
func (h *here) report(r Result, logs string) {
	if h.job.Output.JSON {
		h.console.Print(contract.Words{Result: r}.Bytes())
		return
	}
	text := report(r, logs, h.job.rules)
	if path := h.bundle(r); path != "" {
		text += "\n  bundle         " + path
	}
	if h.narrator.told(r.Reason) {
		_, text, _ = strings.Cut(text, "\n")
	}
	if text != "" {
		h.console.Say("%s", text)
	}
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
		fmt.Fprintf(os.Stderr, "%s", contract.Words{Warning: err.Error()}.Bytes())
		return
	}
	fmt.Fprintln(os.Stderr, "golaunch:", err)
}

// Report is the end of the job in words. After a failure it has when the first one over all nodes was, what that means, the rank's
// traceback or its last words, and where the logs are; at last the goodput, if it is worth a line.
func (r Result) Report(logs string) string { return report(r, logs, nil) }

func report(r Result, logs string, rules []verdict.Rule) string {
	text := ending(r, logs, rules)
	if r.Goodput.Notable() {
		text += fmt.Sprintf("\n  goodput        %v", r.Goodput)
	}
	return text
}

func ending(r Result, logs string, rules []verdict.Rule) string {
	if r.Code == 0 {
		return r.Reason
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.Reason)
	if f := r.Cause; f != nil {
		why := f.Why
		if f.Exit.Spawn != "" { // the reason has said what
			why = fmt.Sprintf("rank %d on %s", f.Rank, f.Node)
		}
		fmt.Fprintf(&b, "  first failure  %s, attempt %d", why, f.Attempt)
		if !f.At.IsZero() {
			fmt.Fprintf(&b, ", at %s", f.At.Format("2006-01-02 15:04:05.000 MST"))
		}
		b.WriteByte('\n')
		if f.Further > 0 {
			fmt.Fprintf(&b, "  echoes         %d more failed before they were told to stop\n", f.Further)
		}
		if v := judgeFailure(*f, rules); v.Cause != "" && v.Cause != verdict.Unknown {
			if f.Exit.Spawn != "" {
				v.Quote = ""
			}
			fmt.Fprintf(&b, "  cause          %s\n", v)
		}
		switch {
		case f.Traceback != "":
			fmt.Fprintf(&b, "  traceback\n%s\n", indent(f.Traceback))
		case f.Tail != "":
			fmt.Fprintf(&b, "  last words\n%s\n", indent(f.Tail))
		}
	}
	fmt.Fprintf(&b, "  exit code      %d", r.Code)
	if advice := again[r.Ending]; advice != "" {
		fmt.Fprintf(&b, " (%s: %s)", r.Ending, advice)
	}
	b.WriteByte('\n')
	if logs != "" {
		fmt.Fprintf(&b, "  logs           %s\n", logs)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// again is whether to submit a job again that ended so.
var again = map[Ending]string{
	EndProgram:        "it would fail again",
	EndBudget:         "it has failed more often than it may",
	EndInfrastructure: "submit it again",
	EndPreempted:      "submit it again",
}

// judgeFailure is the verdict on the first failure; the zero one if it is not about the end of a rank.
func judgeFailure(f Failure, rules []verdict.Rule) verdict.Verdict {
	if f.Rank < 0 || f.Hung {
		return verdict.Verdict{}
	}
	return verdict.Judge(verdict.Evidence{
		Exit: verdict.Exit(f.Exit), Tail: f.Tail, Traceback: f.Traceback, Node: f.Node, Rank: f.Rank, Attempt: f.Attempt, Lived: f.Lived, Step: f.Step, Kernel: f.Kernel,
	}, rules...)
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
