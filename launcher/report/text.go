package report

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
)

// Report describes the end of the job in words. For a failed job, it begins with at most five lines
// of the failed rank's last output. Then come up to seven lines: the rank, its node and how the
// rank ended; the cause; the line that shows the cause; what to do; the last checkpoint, if
// golaunch has seen one; the ending, with the exit code; and the text logs, which says where the
// logs are. For a successful job, it has the goodput, if that is worth a line.
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
		r.addStart(add)
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
		if f.Exit.Started() { // if the rank was not started, the reason says so already
			add("evidence", v.Quote)
		}
		if v.Cause != "" {
			add("advice", string(v.Action)+": "+v.Remedy)
		}
	}
	if r.Saves != nil {
		add("saved", r.Saves.ending())
	}
	add("ending", r.ending())
	r.addStart(add)
	add("logs", logs)
	return b.String()
}

// addStart adds a line about the newest start, if it took long.
func (r Result) addStart(add func(what, text string)) {
	if r.Start.Notable() {
		add("start", r.Start.String())
	}
}

// ending says how the job ended, with the goodput if the ranks had an hour or more.
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
		goodput, _, _ := strings.Cut(g.String(), ";") // golaunch status shows the costs
		text += "; goodput " + goodput
	}
	return text
}

// again says, for each ending, whether to submit the job again.
var again = map[Ending]string{
	EndProgram:        "it would fail again",
	EndBudget:         "it has failed more often than it may",
	EndInfrastructure: "submit it again",
	EndPreempted:      "submit it again",
}

// Bounds of the last words in a report: the number of lines, and the bytes of each line.
const (
	maxLastWords = 5
	maxLastWord  = 300
)

// lastWords returns the last lines of the rank's traceback, or else of its output. It skips lines
// without text.
func (f *Failure) lastWords() (lines []string) {
	for line := range strings.Lines(cmp.Or(f.Traceback, f.Tail)) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if strings.Trim(line, " ^~") == "" { // Python prints such a line below a line of code, to mark a place in it
			continue
		}
		if len(line) > maxLastWord {
			line = strings.ToValidUTF8(line[:maxLastWord], "") + "..."
		}
		lines = append(lines, line)
	}
	return lines[max(0, len(lines)-maxLastWords):]
}
