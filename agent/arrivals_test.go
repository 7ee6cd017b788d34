package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// TestArrivals finds the process whose first connection came last.
func TestArrivals(t *testing.T) {
	now := time.Now()
	at := func(pid, port int, ago time.Duration, spoke bool) tcpstore.ClientStatus {
		c := tcpstore.ClientStatus{Peer: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(port)), PID: pid, Spoke: spoke}
		if ago > 0 { // else it is a client of a proxy
			c.Came = now.Add(-ago)
		}
		return c
	}
	var a arrivals
	a.changed()
	early := []tcpstore.ClientStatus{at(7, 1, 3*time.Second, true), at(7, 2, time.Second, true), at(8, 3, time.Second, false)}
	if last, _ := a.take(now, early, 2); last != nil {
		t.Errorf("%v came last of 2, where one has said nothing", last)
	}
	all := append(early, at(9, 4, 2*time.Second, true))
	a.changed()
	if last, when := a.take(now, all, 2); last == nil || last.PID != 9 || !when.Equal(now.Add(-2*time.Second)) {
		t.Errorf("%v came last at %v, want process 9", last, when)
	}
	if a.changed(); a.count != nil {
		t.Error("it counts when all have come")
	}
	a = arrivals{}
	if last, when := a.take(now, append(all, at(10, 5, 0, true)), 3); last == nil || last.PID != 10 || !when.Equal(now) {
		t.Errorf("%v came last at %v, want process 10 behind a proxy", last, when)
	}
}
