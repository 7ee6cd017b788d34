package ignore

import (
	"fmt"
	"regexp"
	"strings"
)

// compile translates a pattern to an expression over the characters of [widen]. It is nil for a
// pattern that matches nothing.
func compile(pattern string, byName bool) *regexp.Regexp {
	t := translation{pattern: pattern, byName: byName}
	for t.at < len(pattern) {
		if !t.next() {
			return nil
		}
	}
	re, err := regexp.Compile(`^(?s:` + t.out.String() + `)$`)
	if err != nil { // the expression is longer than Go permits
		return nil
	}
	return re
}

// translation is the translation of a pattern up to a position.
type translation struct {
	pattern string
	byName  bool
	at      int
	// globbed says that an earlier element was not literal.
	globbed bool
	out     strings.Builder
}

// next translates one element, and returns false if the pattern matches nothing.
func (t *translation) next() bool {
	c := t.pattern[t.at]
	switch c {
	case '*':
		t.stars()
	case '?':
		t.at++
		t.out.WriteString(t.one())
	case '[':
		set, n := class(t.pattern[t.at:])
		if n == 0 {
			return false
		}
		t.at += n
		if !t.byName {
			set['/'] = false
		}
		t.out.WriteString(set.text())
	case '\\':
		t.at++
		if t.at == len(t.pattern) {
			return false
		}
		c = t.pattern[t.at]
		fallthrough
	default:
		t.at++
		fmt.Fprintf(&t.out, `\x{%x}`, c)
		return true
	}
	t.globbed = true
	return true
}

// one matches any character of an element of a path.
func (t *translation) one() string {
	if t.byName {
		return "."
	}
	return "[^/]"
}

// stars translates a run of stars. Two or more between slashes match any number of directories. Git
// compares the literal beginning of a pattern separately, so the rest counts as a new beginning.
func (t *translation) stars() {
	first := t.at
	for t.at < len(t.pattern) && t.pattern[t.at] == '*' {
		t.at++
	}
	rest := t.pattern[t.at:]
	begins := first == 0 || !t.globbed || t.pattern[first-1] == '/'
	switch {
	case t.at-first < 2 || t.byName || !begins:
		t.out.WriteString(t.one() + "*")
	case rest == "" || strings.HasPrefix(rest, `\/`):
		t.out.WriteString(".*")
	case rest[0] == '/':
		t.at++
		t.out.WriteString("(?:.*/)?")
	default:
		t.out.WriteString(t.one() + "*")
	}
}

// set has the bytes of a class.
type set [256]bool

// text returns the set as an expression.
func (s *set) text() string {
	var out strings.Builder
	for c, in := range s {
		if in {
			fmt.Fprintf(&out, `\x{%x}`, c)
		}
	}
	if out.Len() == 0 {
		return `[^\x{0}-\x{10ffff}]`
	}
	return "[" + out.String() + "]"
}

// class parses a class at the beginning of a pattern, and returns the length of the class; 0 if it
// has no end.
func class(pattern string) (s set, length int) {
	at := 1
	negated := at < len(pattern) && (pattern[at] == '!' || pattern[at] == '^')
	if negated {
		at++
	}
	// before is the character that may begin a range; -1 if there is none.
	before := -1
	for first := true; ; first = false {
		if at == len(pattern) {
			return s, 0
		}
		c := pattern[at]
		switch {
		case c == ']' && !first:
			if negated {
				for i := range s {
					s[i] = !s[i]
				}
			}
			return s, at + 1
		case c == '-' && before >= 0 && at+1 < len(pattern) && pattern[at+1] != ']':
			at++
			if c = pattern[at]; c == '\\' {
				if at++; at == len(pattern) {
					return s, 0
				}
				c = pattern[at]
			}
			for i := before; i <= int(c); i++ {
				s[i] = true
			}
			before = -1
		case c == '[' && at+1 < len(pattern) && pattern[at+1] == ':':
			end := strings.IndexByte(pattern[at+2:], ']')
			if end < 0 {
				return s, 0
			}
			name, closed := strings.CutSuffix(pattern[at+2:at+2+end], ":")
			if !closed || end == 0 { // it is no POSIX class
				s['['], before = true, '['
				break
			}
			in, known := posix[name]
			if !known {
				return s, 0
			}
			for i := range 128 {
				s[i] = s[i] || in(byte(i))
			}
			at, before = at+2+end, -1
		default:
			if c == '\\' {
				if at++; at == len(pattern) {
					return s, 0
				}
				c = pattern[at]
			}
			s[c], before = true, int(c)
		}
		at++
	}
}

// posix are the classes of POSIX, for ASCII.
var posix = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return alpha(c) || digit(c) },
	"alpha":  alpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  digit,
	"graph":  graph,
	"lower":  lower,
	"print":  func(c byte) bool { return c == ' ' || graph(c) },
	"punct":  func(c byte) bool { return graph(c) && !alpha(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  upper,
	"xdigit": func(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}

func alpha(c byte) bool { return lower(c) || upper(c) }
func digit(c byte) bool { return c >= '0' && c <= '9' }
func graph(c byte) bool { return c > ' ' && c < 0x7f }
func lower(c byte) bool { return c >= 'a' && c <= 'z' }
func upper(c byte) bool { return c >= 'A' && c <= 'Z' }
