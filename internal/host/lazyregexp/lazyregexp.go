// Package lazyregexp compiles a regular expression when it is first used, so that a process does
// not pay at its start for the expressions of verbs that it never runs.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression that may not be compiled yet.
type Regexp struct {
	pattern  string
	once     sync.Once
	compiled *regexp.Regexp
}

// New returns the expression of a pattern. As a package's variable, the expression costs no
// initialization.
func New(pattern string) *Regexp { return &Regexp{pattern: pattern} }

// Get returns the expression compiled. It panics if the pattern is wrong.
func (r *Regexp) Get() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.pattern) })
	return r.compiled
}
