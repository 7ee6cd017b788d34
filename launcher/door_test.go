package launcher

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

// answering listens at an address and says the same to everybody.
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
	// Others have the first ports: one is a door of another job, one speaks something else, one nothing.
	for i, text := range []string{"golaunch-door-1 another 10.0.0.8:1 -\n", "SSH-2.0-OpenSSH_9.2\r\n", ""} {
		answering(t, netip.AddrPortFrom(at, threshold{job: job}.port(i)), text)
	}
	warn := func(err error) { t.Error(err) }
	d, err := openDoor(threshold{job: job}, at, coordinator, mtls.NewToken(), false, warn)
	if err != nil {
		t.Fatal(err)
	}
	f, err := knock(t.Context(), threshold{job: job}, at.String(), func(text string) { t.Log(text) })
	if err != nil || f.coordinator != "10.0.0.7:4711" || f.token != nil {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := openDoor(threshold{job: job}, at, coordinator, mtls.NewToken(), false, warn); err == nil || !strings.Contains(err.Error(), "in use by pid") {
		t.Errorf("a door without a free port: %v", err)
	}
	d.close()
	if _, err := tryDoors(t.Context(), threshold{job: job}, at.String()); err == nil || !strings.Contains(err.Error(), "belongs to something else") {
		t.Errorf("at a closed door: %v", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errLate)
	if _, err := knock(gone, threshold{job: job}, at.String(), func(string) {}); !errors.Is(err, errLate) || !strings.Contains(err.Error(), "node 0 of job "+job) {
		t.Errorf("at a closed door, too late: %v", err)
	}
}

func TestDoorPorts(t *testing.T) {
	for _, c := range []struct {
		given, want ports.Range
		distinct    int
	}{
		{ports.Range{}, doors, doorPorts},
		{ports.Range{First: 30000, Last: 30100}, ports.Range{First: 30000, Last: 30100}, doorPorts},
		{ports.Range{First: 65533, Last: 65535}, ports.Range{First: 65533, Last: 65535}, 3},
		{ports.Range{First: 1, Last: 65535}, ports.Range{First: 1, Last: 65535}, doorPorts},
	} {
		seen := map[uint16]bool{}
		for i := range doorPorts {
			p := threshold{"123.0", c.given}.port(i)
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
