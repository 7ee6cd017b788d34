//go:build !amd64 && !arm64

package signals

func filterAddr() uintptr { return 0 }
