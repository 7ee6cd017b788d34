// Package usage marks errors about something that the user must change.
package usage

import (
	"errors"
	"fmt"
)

var kind = errors.New("bad job")

// Kind returns the error that errors.Is finds in all errors of this package.
func Kind() error { return kind }

// Errorf formats an error about something that the user must change.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)
}
