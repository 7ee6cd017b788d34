//go:build amd64 || arm64

package signals

// filter is a signal handler that calls next, unless the kernel sent the signal. filterAddr is its
// address.
func filter() //nolint:unused // filterAddr has its address
func filterAddr() uintptr
