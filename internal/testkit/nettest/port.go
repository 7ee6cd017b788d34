package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Port returns a port that is free at all addresses of this machine. It is below the ports that the
// system chooses itself (net.ipv4.ip_local_port_range, from 32768 on by default), so it stays free.
func Port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		if l, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
