package watch

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
)

// TestLinks: over ssh, the verb prints the whole command that forwards the page to the user's
// machine, from an address that no other user can hold.
func TestLinks(t *testing.T) {
	for _, c := range []struct{ host, at, ssh, says, link string }{
		{"127.0.0.1", "127.0.0.1:8265", "10.0.0.1 5 10.0.0.2 22", "ssh -L 8265:127.0.0.1:8265 " + hostname() + ",", "http://127.0.0.1:8265/login"},
		{"localhost", "127.0.0.1:8265", "", "the dashboard runs; open, once", "http://127.0.0.1:8265/login"},
		{"::1", "[::1]:99", "10.0.0.1 5 10.0.0.2 22", "ssh -L 99:[::1]:99 " + hostname() + ",", "http://[::1]:99/login"},
		{"login01", "10.0.0.2:8265", "10.0.0.1 5 10.0.0.2 22", "the dashboard runs; open, once", "http://login01:8265/login"},
	} {
		t.Setenv("SSH_CONNECTION", c.ssh)
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.at))
		var out, said bytes.Buffer
		printer(&cli.Console{Stdout: &out, Stderr: &said}, c.host, at)("/login")
		if !strings.Contains(said.String(), c.says) || strings.TrimSpace(out.String()) != c.link {
			t.Errorf("%s: %s%s", c.host, said.String(), out.String())
		}
	}
}
