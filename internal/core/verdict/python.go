package verdict

import (
	"slices"
	"strings"

	"github.com/golaunch/golaunch/launcher/report"
)

// Python writes a traceback as a heading, indented frames, and the exception at the margin. The
// exception's message may have more lines (Lib/traceback.py). One of two sentences joins the
// exceptions of a chain.
const (
	heading = "Traceback (most recent call last):"
	during  = "During handling of the above exception, another exception occurred:"
	caused  = "The above exception was the direct cause of the following exception:"
	ignored = "Exception ignored in"
	thrown  = "terminate called after throwing an instance of"

	// maxMessage is how many lines of an exception's message are read, and maxChain how many
	// exceptions of a chain.
	maxMessage = 16
	maxChain   = 16
)

// logged matches the beginning of a line of torch's C++ log, which is not part of a message
// (c10/util/Logging.cpp).
var logged = later(`^(?:\[rank\d+\]:)?\[[IWEF]\d* `)

// mark matches what torch and launchers put before a line, such as "[rank3]: ".
var mark = later(`^(?:\[[^\[\]]{1,40}\]:? ?)+`)

// raised is the rule for an exception that no other rule matches.
var raised = Rule{
	Action: report.ActionRestart, Cause: "python-error", Title: "a Python exception", Origin: "Python",
	Remedy: "read the traceback; when it comes again at the same place it is a bug in the program",
}

// threw is the rule for a C++ exception that no other rule matches.
var threw = Rule{
	Action: report.ActionRestart, Cause: "cpp-error", Title: "a C++ exception", Origin: "libstdc++",
	Remedy: "read the lines around it; when it comes again it is a bug in the program",
}

// chain returns the exceptions of the last traceback in a text, the last one first, each with its
// message. handled are the exceptions that were being handled when another one was raised.
func (t text) chain() (chain, handled []text) {
	link := ""
	lines := strings.Split(t.body, "\n")
	for i := 0; i < len(lines); i++ {
		switch line := unmarked(lines[i]); {
		case line == during || line == caused:
			link = line
		case strings.HasSuffix(line, heading) && i > 0 && strings.HasPrefix(unmarked(lines[i-1]), ignored):
			i = frames(lines, i+1)
		case strings.HasSuffix(line, heading):
			switch link {
			case "":
				chain, handled = nil, nil
			case during:
				chain, handled = nil, longer(handled, chain...)
			}
			link = ""
			if i = frames(lines, i+1); i < len(lines) {
				chain = longer(chain, t.message(lines, i))
			}
		case strings.HasPrefix(line, thrown) && len(chain) == 0:
			chain = []text{t.message(lines, i)}
		}
	}
	return chain, handled
}

// longer puts exceptions in front of a chain. It drops some of the chain to keep it short.
func longer(chain []text, last ...text) []text {
	return slices.Concat(last, chain[:min(len(chain), maxChain)])
}

// frames returns the index of the first line at or after i that is at the margin: the exception.
func frames(lines []string, i int) int {
	for ; i < len(lines); i++ {
		if line := unmarked(lines[i]); line != "" && !strings.HasPrefix(line, " ") {
			break
		}
	}
	return i
}

// message returns the exception at line i.
func (t text) message(lines []string, i int) text {
	end := i + 1
	for end < len(lines) && end < i+maxMessage {
		line := unmarked(lines[end])
		if line == "" || logged().MatchString(lines[end]) || strings.HasSuffix(line, heading) {
			break
		}
		end++
	}
	return text{t.from, strings.Join(lines[i:end], "\n"), t.skipped + i}
}

func unmarked(line string) string {
	if strings.HasPrefix(line, "[") {
		line = line[len(mark().FindString(line)):]
	}
	return strings.TrimRight(line, "\r")
}

// raise returns the verdict on a chain of exceptions. It prefers the exception that the most
// specific rule matches. If there is none, it takes a handled exception that is never a mere
// warning. An echo counts only if no other exception matches. If no rule matches any exception, the
// verdict is on the last exception.
func raise(chain, handled []text) report.Verdict {
	if v, ok := first(builtin(), chain, func(r Rule) bool { return !r.Victim }); ok {
		return v
	}
	if v, ok := first(builtin(), handled, Rule.fatal); ok {
		return v
	}
	if v, ok := first(builtin(), chain, every); ok {
		return v
	}
	last := chain[0]
	if !strings.HasPrefix(unmarked(last.body), thrown) {
		return last.verdict(raised, 0)
	}
	return last.verdict(threw, max(0, strings.Index(last.body, "what():")))
}
