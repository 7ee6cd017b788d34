//go:build static

package dylib

// Flags of Open, which does nothing here.
const (
	Lazy = iota
	Now
	Local
	Global
)

func Open(string, int) (uintptr, error) { return 0, ErrStatic }

func Symbol(uintptr, string) (uintptr, error) { return 0, ErrStatic }

func Bind(any, uintptr) {}

func Close(uintptr) error { return nil }
