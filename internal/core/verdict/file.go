package verdict

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/golaunch/golaunch/launcher/report"
)

// Bounds of a file with rules, in bytes and lines.
const (
	MaxFile    = 64 << 10
	maxRules   = 256
	maxPattern = 1 << 10
)

// causeCode matches a valid code.
var causeCode = later(`^[a-z0-9][a-z0-9-]{0,39}$`)

// Parse reads a user's own rules, one per line:
//
//	ACTION CODE /REGEXP/ REMEDY...
//
// such as
//
//	stop  licence  /licence server .* refused/  ask for a seat
//
// ACTION is restart, replace, stop or wait. CODE has lower-case letters, digits and '-'. REGEXP has
// RE2's syntax, so a search always takes linear time. A slash is written as \/. Each line is
// searched for REGEXP. The word victim: before CODE says that such a line is the echo of another
// rank's failure. Empty lines and lines that begin with # are skipped. The error names the file and
// the line, and says what is wrong.
func Parse(file, data string) ([]Rule, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: %d bytes of rules: at most %d", file, len(data), MaxFile)
	}
	var rules []Rule
	n := 0
	for line := range strings.Lines(data) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, err := parseRule(line)
		if err == nil && len(rules) == maxRules {
			err = fmt.Errorf("more than %d rules", maxRules)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		rule.Origin = fmt.Sprintf("%s:%d", file, n)
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseRule(line string) (Rule, error) {
	action, rest, _ := strings.Cut(line, " ")
	code, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	rule := Rule{Action: report.Action(action)}
	rule.Cause, rule.Victim = strings.CutPrefix(code, "victim:")
	switch {
	case !valid(rule.Action):
		return Rule{}, fmt.Errorf("action %q: restart, replace, stop or wait", action)
	case !causeCode().MatchString(rule.Cause):
		return Rule{}, fmt.Errorf("code %q: up to 40 lower case letters, digits and '-'", code)
	}
	expr, remedy, err := cutPattern(strings.TrimSpace(rest))
	if err != nil {
		return Rule{}, err
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return Rule{}, err
	}
	if re.MatchString("") {
		return Rule{}, fmt.Errorf("/%s/ matches every line", expr)
	}
	rule.patterns = []pattern{{re: func() *regexp.Regexp { return re }}}
	rule.Title = "a rule of your own"
	if rule.Remedy = remedy; remedy == "" {
		rule.Remedy = "see the rule"
	}
	return rule, nil
}

func valid(a report.Action) bool {
	return a == report.ActionRestart || a == report.ActionReplace || a == report.ActionStop || a == report.ActionWait
}

// cutPattern takes /REGEXP/ from the front of a line.
func cutPattern(text string) (pattern, rest string, err error) {
	if !strings.HasPrefix(text, "/") {
		return "", "", errors.New("no /REGEXP/ after the code")
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			pattern = strings.ReplaceAll(text[1:i], `\/`, "/")
			if pattern == "" || len(pattern) > maxPattern {
				return "", "", fmt.Errorf("a pattern of %d bytes: 1 to %d", len(pattern), maxPattern)
			}
			return pattern, strings.TrimSpace(text[i+1:]), nil
		}
	}
	return "", "", errors.New("the /REGEXP/ has no end")
}
