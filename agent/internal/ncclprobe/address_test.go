package ncclprobe

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		addr, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		at, err := netip.ParseAddrPort(addr)
		if err != nil || !at.Addr().IsLoopback() || at.Port() != defaultPort || seen[addr] || strings.HasPrefix(addr, "127.0.") {
			t.Errorf("%s (%v), after %d others", addr, err, len(seen))
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}

// TestAddressWhereTheUsualPortIsTaken has another program listen at the usual port on all
// addresses.
func TestAddressWhereTheUsualPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	usual := l.Addr().(*net.TCPAddr).Port
	addr, err := address(usual)
	if at := netip.MustParseAddrPort(addr); err != nil || int(at.Port()) == usual || at.Addr() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%s, %v", addr, err)
	}
}
