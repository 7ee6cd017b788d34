package verdict

import (
	"regexp"
	"strings"
	"sync"

	"github.com/golaunch/golaunch/launcher/report"
)

// Rule says what a line means.
type Rule struct {
	Action report.Action
	// Cause is a stable code, Title says the same in words, and Remedy says what a person can do.
	// Origin says which program writes such lines.
	Cause, Title, Remedy, Origin string
	// Victim marks lines that ranks write because another rank has failed.
	Victim bool
	// loose lines are sometimes mere warnings. They decide only in an exception, or if there is no
	// exception.
	loose bool
	// asked says that the rank itself asks for the action.
	asked    bool
	patterns []pattern
}

// pattern is a regular expression. It is compiled only when a text has the literal with which each
// of its matches begins. That saves time, because a restart waits for the verdict, and most
// failures need few patterns.
type pattern struct {
	literal string
	re      func() *regexp.Regexp
}

// builtin reads the tables once, at the first failure, so a job that succeeds does not pay for
// them.
var builtin = sync.OnceValue(func() (rules []Rule) {
	for _, t := range [][]row{asked, hardware, gpu, host, fabric, program} {
		for _, r := range t {
			rules = append(rules, r.rule())
		}
	}
	return rules
})

// later returns a pattern that is compiled at its first use, so a job that succeeds does not pay
// for it.
func later(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// row is a rule in a table. It has one pattern per line.
type row struct {
	action          report.Action
	cause, title    string
	patterns        string
	remedy, origin  string
	passing, victim bool
	asked           bool
}

func (r row) rule() Rule {
	rule := Rule{
		Action: r.action, Cause: r.cause, Title: r.title, Remedy: r.remedy, Origin: r.origin, Victim: r.victim, loose: r.passing, asked: r.asked,
	}
	for p := range strings.Lines(strings.TrimSpace(r.patterns)) {
		p = strings.TrimSpace(p)
		rule.patterns = append(rule.patterns, pattern{literal(p), later(p)})
	}
	return rule
}

// literal returns the characters with which a pattern of a table begins.
func literal(pattern string) string {
	at := strings.IndexAny(pattern, `\.+*?()[]{^$`)
	switch {
	case at < 0:
		return pattern
	case strings.IndexByte(`*?{`, pattern[at]) >= 0:
		at-- // the last character is optional
	}
	return pattern[:at]
}

// hardware reports whether the rule's lines always mean that hardware is broken. fatal reports
// whether they are never mere warnings or echoes.
func (r Rule) hardware() bool { return r.Action == report.ActionReplace && !r.loose }
func (r Rule) fatal() bool    { return !r.loose && !r.Victim }
func every(Rule) bool         { return true }

// text is a part of the evidence. skipped counts the lines before the part that is read.
type text struct {
	from    report.Source
	body    string
	skipped int
}

func read(from report.Source, body string) text {
	cut := max(0, len(body)-maxText)
	return text{from, body[cut:], strings.Count(body[:cut], "\n")}
}

// first returns the verdict of the first rule that matches. In each text the earliest line counts,
// because later lines are consequences.
func first(rules []Rule, texts []text, which func(Rule) bool) (report.Verdict, bool) {
	for _, r := range rules {
		if !which(r) {
			continue
		}
		for _, t := range texts {
			if at := r.find(t.body); at >= 0 {
				return t.verdict(r, at), true
			}
		}
	}
	return report.Verdict{}, false
}

// find returns the position of the match in the earliest matching line, or -1.
func (r Rule) find(body string) int {
	best := -1
	for _, p := range r.patterns {
		begin := strings.Index(body, p.literal)
		if begin < 0 {
			continue
		}
		if at := p.re().FindStringIndex(body); at != nil && (best < 0 || at[0] < best) {
			best = at[0]
		}
	}
	return best
}

func (t text) verdict(r Rule, at int) report.Verdict {
	begin := strings.LastIndexByte(t.body[:at], '\n') + 1
	line, _, _ := strings.Cut(t.body[begin:], "\n")
	return report.Verdict{
		Action: r.Action, Cause: r.Cause, Title: r.Title, Victim: r.Victim, Remedy: r.Remedy,
		Quote: quote(line), From: t.from, Line: t.skipped + strings.Count(t.body[:begin], "\n") + 1,
	}
}

// quote returns a line in a form that is safe to show.
func quote(line string) string {
	line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD"))
	if len(line) > maxQuote {
		line = strings.ToValidUTF8(line[:maxQuote], "") + "..."
	}
	return line
}
