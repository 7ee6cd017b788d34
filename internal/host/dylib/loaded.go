//go:build !static

package dylib

import "github.com/ebitengine/purego"

// Flags of Open; see dlopen(3).
const (
	Lazy   = purego.RTLD_LAZY
	Now    = purego.RTLD_NOW
	Local  = purego.RTLD_LOCAL
	Global = purego.RTLD_GLOBAL
)

// Open loads a library by its path, or by a name that the loader finds.
func Open(name string, how int) (uintptr, error) { return purego.Dlopen(name, how) }

// Symbol is the address of a symbol in a library.
func Symbol(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

// Bind makes a function, given as a pointer to a variable of its type, call the C function at an
// address.
func Bind(function any, symbol uintptr) { purego.RegisterFunc(function, symbol) }

// Close unloads a library unless it is still used elsewhere.
func Close(library uintptr) error { return purego.Dlclose(library) }
