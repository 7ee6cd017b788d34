//go:build amd64 || arm64

package signals

// filter is a handler that goes on to next, unless the signal comes from the kernel. filterAddr is
// where it is.
func filter() //nolint:unused // filterAddr has its address
func filterAddr() uintptr
