package tcpstore

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
)

// serverMode makes the test binary serve a separate store, as for a benchmark. Then client and
// server have open files of their own. If its value is an address, the binary serves a proxy of the
// store there.
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
