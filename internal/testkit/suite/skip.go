package suite

import (
	"os"
	"testing"
)

// Missing skips a test that this machine cannot run, since something is missing. With CI=true the
// test fails. At the end of its log, tools/test lists every skipped test with the reason.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// LeftToAll skips a test that only make test-all runs ([All]).
func LeftToAll(t testing.TB, why string) {
	t.Helper()
	if !All() {
		t.Skip("left to make test-all: " + why)
	}
}

// Optional returns the path of something large from PyPI, which a variable names. If PyPI cannot be
// reached, .ci/run reports this and sets the variable to "none": then the test is skipped in CI
// too.
func Optional(t testing.TB, variable, what string) (path string) {
	t.Helper()
	path = os.Getenv(variable)
	switch path {
	case "":
		Missing(t, "%s names no %s: .ci/run fetches it, or says none", variable, what)
	case "none":
		t.Skipf("%s=none: there is no %s here", variable, what)
	}
	return path
}
