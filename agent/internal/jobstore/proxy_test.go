package jobstore

import (
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

func storeHere(t *testing.T) *tcpstore.Store {
	t.Helper()
	l, err := masterport.Listen("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tcpstore.Serve(l, tcpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestAProxyForThoseWhoUseIt checks that ranks that share a proxy with running ranks keep the proxy
// as long as it serves their store. Other ranks get a new proxy.
func TestAProxyForThoseWhoUseIt(t *testing.T) {
	var wants Wants
	othersLive := false
	s := New(Host{
		Job: "test", Addr: netip.MustParseAddr("127.0.0.1"), Listen: masterport.Listen, Wants: func() Wants { return wants },
		OthersLive: func(int) bool { return othersLive }, Warn: func(err error) { t.Error(err) },
	}).Of(0, false)
	t.Cleanup(s.close)
	start := func(unit int, root *tcpstore.Store) job.Start {
		return job.Start{
			Unit: unit, Group: placement.Group{NodeRank: 1},
			World: job.World{MasterAddr: "127.0.0.1", MasterPort: int(root.Addr().Port()), LocalSize: 2},
		}
	}
	stand := func(o job.Start) netip.AddrPort {
		t.Helper()
		at, err := s.ProxyFor(o)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	root := storeHere(t)
	if at := stand(start(0, root)); at.IsValid() {
		t.Errorf("a job that is to have no proxies has one at %v", at)
	}
	wants.Proxy = true
	master := start(0, root)
	master.Group.NodeRank = 0
	if at := stand(master); at.IsValid() {
		t.Errorf("the master has a proxy at %v", at)
	}
	first := stand(start(0, root))
	if again := stand(start(0, root)); again == first {
		t.Error("an attempt has the proxy of the one before")
	}
	othersLive = true
	first = stand(start(0, root))
	if shared := stand(start(1, root)); shared != first {
		t.Errorf("ranks that start beside others have a proxy at %v, the others at %v", shared, first)
	}
	c, err := tcpstore.Dial(t.Context(), first, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Add(t.Context(), "n", 1); n != 1 || err != nil {
		t.Errorf("the first count is %d, %v", n, err)
	}
	other := storeHere(t)
	if at := stand(start(1, other)); at == first {
		t.Error("it stands for a store that the ranks do not have")
	}
	other.Close()
	<-s.proxy.ended
	ended := s.proxy.addr()
	if at := stand(start(1, other)); at == ended {
		t.Error("a proxy that has ended is used again")
	}
	s.closeProxy()
	if _, err := s.ProxyFor(job.Start{Group: placement.Group{NodeRank: 1}, World: job.World{MasterAddr: "a name"}}); err == nil {
		t.Error("it stands for a store at no address")
	}
}
