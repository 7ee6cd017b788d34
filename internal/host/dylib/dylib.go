// Package dylib loads shared libraries without cgo.
//
// libc's dynamic loader loads them, so a program with this package is linked with libc; any version
// of libc will do. A program built with the tag static is not linked with libc and loads no
// libraries. It runs without glibc too: with musl, or in an empty container.
package dylib

import "errors"

// ErrStatic means that this program cannot load libraries.
var ErrStatic = errors.New("this golaunch is the static build, which loads no libraries and so finds no GPUs; install the build for glibc")
