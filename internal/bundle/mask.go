package bundle

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// secret are the names of variables whose values nobody should see.
var secret = regexp.MustCompile(`(?i)token|secret|passw|key|credential|authorization|cookie`)

// login is a name and a password in a URL.
var login = regexp.MustCompile(`://[^/\s:@]+:[^/\s@]+@`)

const masked = "***"

// shortest is the length of a value from which on it is masked wherever it stands: shorter ones are words that stand anywhere.
const shortest = 8

// secrets are values that are hidden wherever they stand.
type secrets []string

// learn takes note of those in an environment, which the names of variables tell.
func (s *secrets) learn(env []string) {
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if secret.MatchString(name) && len(value) >= shortest && !slices.Contains(*s, value) {
			*s = append(*s, value)
		}
	}
}

// mask is a function that hides them.
func (s secrets) mask() func(text []byte) []byte {
	longest := slices.SortedFunc(slices.Values(s), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may be part of another
	var pairs []string
	for _, value := range longest {
		pairs = append(pairs, value, masked)
	}
	hide := strings.NewReplacer(pairs...)
	return func(text []byte) []byte {
		if !bytes.Contains(text, []byte("://")) && len(s) == 0 {
			return text
		}
		return login.ReplaceAll([]byte(hide.Replace(string(text))), []byte("://"+masked+"@"))
	}
}

// variable is NAME=value without a secret.
func variable(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	if secret.MatchString(name) {
		return name + "=" + masked
	}
	return pair
}
