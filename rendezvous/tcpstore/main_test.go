package tcpstore

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
)

// serverMode makes the test binary serve a store in its own process, as for a benchmark, so that
// client and server do not share a limit on open files. If its value is an address, the binary
// serves a proxy of the store at that address.
const serverMode = "TCPSTORE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverMode) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	root, _ := netip.ParseAddrPort(os.Getenv(serverMode)) // none in another mode
	s, err := Serve(l, Options{Root: root, Warn: func(err error) { fmt.Fprintln(os.Stderr, err) }})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Addr().Port())
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}
