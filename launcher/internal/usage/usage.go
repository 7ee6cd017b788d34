// Package usage marks errors about something that the user must change.
package usage

import (
	"errors"
	"fmt"
)

var kind = errors.New("bad job")

// Kind returns the error that errors.Is finds in all these errors.
func Kind() error { return kind }

// Errorf returns such an error.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)
}
