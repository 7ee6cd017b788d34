package arrivals

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// TestArrivals finds the process whose first connection came last.
func TestArrivals(t *testing.T) {
	now := time.Now()
	at := func(pid, port int, ago time.Duration, spoke bool) tcpstore.ClientStatus {
		c := tcpstore.ClientStatus{Peer: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(port)), PID: pid, Spoke: spoke}
		if ago > 0 { // 0 stands for a client of a proxy, and the store does not know when it came
			c.Came = now.Add(-ago)
		}
		return c
	}
	var a Counter
	a.Changed()
	early := []tcpstore.ClientStatus{at(7, 1, 3*time.Second, true), at(7, 2, time.Second, true), at(8, 3, time.Second, false)}
	if last, _ := a.Take(now, early, 2); last != nil {
		t.Errorf("%v came last of 2, where one has said nothing", last)
	}
	all := append(early, at(9, 4, 2*time.Second, true))
	a.Changed()
	if last, when := a.Take(now, all, 2); last == nil || last.PID != 9 || !when.Equal(now.Add(-2*time.Second)) {
		t.Errorf("%v came last at %v, want process 9", last, when)
	}
	if a.Changed(); a.Due != nil {
		t.Error("it counts when all have come")
	}
	a = Counter{}
	if last, when := a.Take(now, append(all, at(10, 5, 0, true)), 3); last == nil || last.PID != 10 || !when.Equal(now) {
		t.Errorf("%v came last at %v, want process 10 behind a proxy", last, when)
	}
}

func TestMeeting(t *testing.T) {
	spoke := func(port uint16, pid int, waits ...string) tcpstore.ClientStatus {
		return tcpstore.ClientStatus{
			Peer: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port), Spoke: true, PID: pid, Waiting: waits, Missing: len(waits),
		}
	}
	client := func(pid int, key string) job.Client {
		return job.Client{Addr: netip.MustParseAddr("10.0.0.2"), PID: pid, Key: key}
	}
	for name, c := range map[string]struct {
		clients []tcpstore.ClientStatus
		want    job.Meeting
	}{
		"nobody":                {nil, job.Meeting{}},
		"one that says nothing": {[]tcpstore.ClientStatus{{PID: 7}}, job.Meeting{}},
		"all are there":         {[]tcpstore.ClientStatus{spoke(1, 7), spoke(2, 8), spoke(3, 9)}, job.Meeting{}},
		"two connections of one": {
			[]tcpstore.ClientStatus{spoke(1, 7), spoke(2, 7), spoke(3, 8)},
			job.Meeting{Clients: []job.Client{client(7, ""), client(8, "")}, Came: 2},
		},
		"most wait for one key": {
			[]tcpstore.ClientStatus{spoke(1, 7, "a"), spoke(2, 7, "b"), spoke(3, 8, "b"), spoke(4, 9, "a", "c"), spoke(5, 10, "b")},
			job.Meeting{Clients: []job.Client{client(7, "b"), client(8, "b"), client(9, ""), client(10, "b")}, Key: "b", Came: 4, Waiting: 3},
		},
		"torch that says no pid": {
			[]tcpstore.ClientStatus{spoke(1, 0), spoke(2, 0, "a")},
			job.Meeting{Clients: []job.Client{client(0, ""), client(0, "")}, Came: 2},
		},
	} {
		if got := Meeting(c.clients, 3); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
