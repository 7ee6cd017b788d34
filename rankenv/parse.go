package rankenv

import (
	"fmt"
	"os"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

var validName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ParseEnv reads one --env setting: NAME=value, or NAME alone for the caller's own value. It
// refuses a name that is not a POSIX environment variable name, a NUL byte in the value, and
// golaunch's token.
func ParseEnv(arg string) (Var, error) {
	name, value, given := strings.Cut(arg, "=")
	switch {
	case !validName.Get().MatchString(name):
		return Var{}, fmt.Errorf("--env %q: %q is no name: want NAME=value or NAME, of letters, digits and '_'", arg, name)
	case secret(name):
		return Var{}, fmt.Errorf("--env %s: a rank never sees golaunch's token", name)
	case strings.ContainsRune(value, 0):
		return Var{}, fmt.Errorf("--env %s: a value cannot hold a NUL byte", name)
	case given:
		return Var{Name: name, Value: value, Source: User, Reason: "--env"}, nil
	}
	value, ok := os.LookupEnv(name)
	if !ok {
		return Var{}, fmt.Errorf("--env %s: not set here; give a value: --env %s=value", name, name)
	}
	return Var{Name: name, Value: value, Source: User, Reason: "--env, with the caller's value"}, nil
}
