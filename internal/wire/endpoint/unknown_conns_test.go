package endpoint_test

import (
	"net"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// Silent connections of one machine keep neither a worker nor another machine's controller out: the
// worker and the controller meet before the time limit of the silent connections is over.
func TestSilentStrangers(t *testing.T) {
	token := mtls.NewToken()
	d, addr := open(t, token)
	silent := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 400 {
		conn, err := silent.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	worker := come(t, d, frame(mine))
	controller, _, taken, err := endpoint.Dial(t.Context(), addr, mtls.Client(token, mtls.Identity{}), mine)
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close()
	if err := taken(); err != nil {
		t.Fatal(err)
	}
	talk(t, worker, controller)
}
