//go:build static

package dylib

// Flags of Open, which does nothing here.
const (
	Lazy = iota
	Now
	Local
	Global
)

// Open fails with ErrStatic.
func Open(string, int) (uintptr, error) { return 0, ErrStatic }

// Symbol fails with ErrStatic.
func Symbol(uintptr, string) (uintptr, error) { return 0, ErrStatic }

// Bind does nothing.
func Bind(any, uintptr) {}

// Close does nothing.
func Close(uintptr) error { return nil }
