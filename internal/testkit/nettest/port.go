package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Port is one that is free at all addresses of this machine, and below those that the system gives
// to who asks for any (net.ipv4.ip_local_port_range, from 32768 on by default): nobody has it by
// the time that it is used.
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
