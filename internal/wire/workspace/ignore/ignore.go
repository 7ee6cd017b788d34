// Package ignore decides which files of a tree git would ignore, by the rules of gitignore(5).
//
// It reads rules and looks at no index, so a file that git tracks in spite of a rule is ignored, as
// "git check-ignore --no-index" says. It reads neither core.excludesFile nor .git/info/exclude,
// which are not part of the tree.
package ignore

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Rules are the rules of one directory, in the order of its files.
type Rules struct {
	rules []rule
}

// rule is one line of a file with rules.
type rule struct {
	// negated says that the rule includes files again, and onlyDirs that it is only for
	// directories.
	negated, onlyDirs bool
	// byName says that the last element of a path decides, at any depth.
	byName bool
	// If re is nil, text is the whole name, or its end if suffix is set.
	text   string
	suffix bool
	re     *regexp.Regexp
}

// Add adds the rules of a file, which take precedence over earlier rules.
func (r *Rules) Add(file []byte) {
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	for line := range bytes.Lines(file) {
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if rule, ok := parse(text); ok {
			r.rules = append(r.rules, rule)
		}
	}
}

// Match reports whether the rules ignore a file, and whether they mention it at all. name is the
// file's path below the directory of the rules.
func (r *Rules) Match(name string, dir bool) (ignored, mentioned bool) {
	for _, rule := range slices.Backward(r.rules) {
		if rule.match(name, dir) {
			return !rule.negated, true
		}
	}
	return false, false
}

func parse(text string) (r rule, ok bool) {
	if text == "" || text[0] == '#' {
		return r, false
	}
	text = trimSpaces(text)
	if strings.HasPrefix(text, "!") {
		r.negated, text = true, text[1:]
	}
	if strings.HasSuffix(text, "/") {
		r.onlyDirs, text = true, text[:len(text)-1]
	}
	r.byName = !strings.Contains(text, "/")
	if !r.byName {
		text = strings.TrimPrefix(text, "/")
	}
	if i := strings.IndexAny(text, special); i < 0 {
		r.text = text
	} else if r.byName && text[0] == '*' && !strings.ContainsAny(text[1:], special) {
		r.text, r.suffix = text[1:], true
	} else if r.re = compile(text, r.byName); r.re == nil {
		return r, false
	}
	return r, text != "" || r.suffix
}

// special are the characters that are not literal in a pattern.
const special = `*?[\`

// trimSpaces removes trailing spaces that no backslash precedes.
func trimSpaces(text string) string {
	kept := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ':
			continue
		case '\\':
			i++
		}
		kept = min(i+1, len(text))
	}
	return text[:kept]
}

func (r rule) match(name string, dir bool) bool {
	if r.onlyDirs && !dir {
		return false
	}
	if r.byName {
		name = path.Base(name)
	}
	switch {
	case r.re != nil:
		return r.re.MatchString(widen(name))
	case r.suffix:
		return strings.HasSuffix(name, r.text)
	}
	return name == r.text
}

// widen turns each byte into a character, because git matches bytes.
func widen(text string) string {
	if !strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 }) {
		return text
	}
	wide := make([]rune, len(text))
	for i := range len(text) {
		wide[i] = rune(text[i])
	}
	return string(wide)
}
