//go:build static

package dylib

// How a library would be opened.
const (
	Lazy = iota
	Now
	Local
	Global
)

// Open loads nothing.
func Open(string, int) (uintptr, error) { return 0, ErrStatic }

// Symbol finds nothing.
func Symbol(uintptr, string) (uintptr, error) { return 0, ErrStatic }

// Bind is not called: there is no symbol.
func Bind(any, uintptr) {}

// Close has nothing to unload.
func Close(uintptr) error { return nil }
