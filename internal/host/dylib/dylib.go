// Package dylib loads shared libraries without cgo.
//
// What loads them is libc's dynamic loader, so a program with this package is linked with libc, whichever version that is. With the build tag static it
// is not, loads none, and runs where there is no libc, or another: musl, or a container with nothing in it.
package dylib

import "errors"

// ErrStatic says that this program cannot load libraries.
var ErrStatic = errors.New("this golaunch is the static build, which loads no libraries and so finds no GPUs; install the build for glibc")
