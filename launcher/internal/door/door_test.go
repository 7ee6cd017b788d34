package door

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// answering listens at an address and gives every visitor the same answer.
func answering(t *testing.T, at netip.AddrPort, text string) {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text))
			conn.Close()
		}
	}()
}

func TestDoor(t *testing.T) {
	at := netip.MustParseAddr("127.23.5.1")
	const job = "job-of-the-door-test"
	coordinator := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4711}
	// Other listeners hold the first ports: the door of another job, a program with another
	// protocol, and a program that sends nothing.
	for i, text := range []string{"golaunch-door-1 another 10.0.0.8:1 -\n", "SSH-2.0-OpenSSH_9.2\r\n", ""} {
		answering(t, netip.AddrPortFrom(at, Door{Job: job}.port(i)), text)
	}
	warn := func(err error) { t.Error(err) }
	d, err := Door{Job: job}.Open(at, coordinator, mtls.NewToken(), false, warn)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Door{Job: job}.Knock(t.Context(), at.String(), func(text string) { t.Log(text) })
	if err != nil || a.Coordinator != "10.0.0.7:4711" || a.Token != nil {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := (Door{Job: job}).Open(at, coordinator, mtls.NewToken(), false, warn); err == nil || !strings.Contains(err.Error(), "in use by pid") {
		t.Errorf("a door without a free port: %v", err)
	}
	d.Close()
	if _, err := (Door{Job: job}).tryPorts(t.Context(), at.String()); err == nil || !strings.Contains(err.Error(), "is a port of another job or program") {
		t.Errorf("at a closed door: %v", err)
	}
	tooLate := errors.New("too late")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(tooLate)
	if _, err := (Door{Job: job}).Knock(gone, at.String(), func(string) {}); !errors.Is(err, tooLate) || !strings.Contains(err.Error(), "node 0 of job "+job) {
		t.Errorf("at a closed door, too late: %v", err)
	}
}

func TestDoorPorts(t *testing.T) {
	for _, c := range []struct {
		given, want ports.Range
		distinct    int
	}{
		{ports.Range{}, defaultPorts, portsPerJob},
		{ports.Range{First: 30000, Last: 30100}, ports.Range{First: 30000, Last: 30100}, portsPerJob},
		{ports.Range{First: 65533, Last: 65535}, ports.Range{First: 65533, Last: 65535}, 3},
		{ports.Range{First: 1, Last: 65535}, ports.Range{First: 1, Last: 65535}, portsPerJob},
	} {
		seen := map[uint16]bool{}
		for i := range portsPerJob {
			p := Door{"123.0", c.given}.port(i)
			if int(p) < c.want.First || int(p) > c.want.Last {
				t.Errorf("port %d is not in %v", p, c.want)
			}
			seen[p] = true
		}
		if len(seen) != c.distinct {
			t.Errorf("%v: %d doors, and not %d", c.want, len(seen), c.distinct)
		}
	}
}
