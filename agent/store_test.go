package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// meet returns a client of the store that an answer names. The error says why there is none.
func meet(t *testing.T, p job.Prepared) (*tcpstore.Client, error) {
	t.Helper()
	if p.Err != "" {
		t.Fatal(p.Err)
	}
	c, err := tcpstore.Dial(t.Context(), netip.AddrPortFrom(local.Addr, uint16(p.Port)), patience)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// TestAStoreForEachStart checks that each fresh attempt gets an empty store, and that units that
// restart on their own share one store.
func TestAStoreForEachStart(t *testing.T) {
	s := obeying(t, "exit 0").jobs["test"]
	first := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true})
	c, err := meet(t, first)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set(t.Context(), "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	part := s.stores.Of(0, false).Answer(job.Prepare{Unit: 1})
	if part.Port != first.Port {
		t.Errorf("a part that restarts has port %d, the others %d", part.Port, first.Port)
	}
	if ok, err := c.Check(t.Context(), "key"); !ok || err != nil {
		t.Errorf("the key is there: %v, %v", ok, err)
	}
	second := s.stores.Of(0, false).Answer(job.Prepare{Attempt: 1, Fresh: true})
	if c, err = meet(t, second); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.Check(t.Context(), "key"); ok || err != nil {
		t.Errorf("the key of the attempt before is there: %v, %v", ok, err)
	}
	s.kill()
	s.node.living.Wait()
	if c, err := tcpstore.Dial(t.Context(), netip.AddrPortFrom(local.Addr, uint16(second.Port)), 100*time.Millisecond); err == nil {
		t.Errorf("the store outlives the job: %v", c)
	}
}

// TestTheSameQuestionForOthers checks that a repeated Prepare admits a node that has replaced
// another node since the first Prepare.
func TestTheSameQuestionForOthers(t *testing.T) {
	w := obeying(t, "exit 0")
	s := w.jobs["test"]
	port := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true}).Port
	for _, peer := range []string{"10.0.0.2", "10.0.0.3"} {
		addr := netip.MustParseAddr(peer)
		w.order(job.Prepare{Fresh: true, Peers: []netip.Addr{addr}})
		if !s.stores.Of(0, false).Admits(addr) {
			t.Errorf("%v may not use the store", addr)
		}
	}
	if again := s.stores.Of(0, false).Answer(job.Prepare{Fresh: true}).Port; again != port {
		t.Errorf("port %d, then %d; want one", port, again)
	}
}

func TestPeers(t *testing.T) {
	addr := netip.MustParseAddr
	nodes := []netip.Addr{addr("10.0.0.2"), addr("fd00::2"), addr("::ffff:10.0.0.3")}
	for _, c := range []struct {
		addrs     []netip.Addr
		own, from string
		want      bool
	}{
		{nodes, "10.0.0.2", "10.0.0.2", true},
		{nodes, "10.0.0.2", "10.0.0.3", true},
		{nodes, "10.0.0.2", "::ffff:10.0.0.2", true},
		{nodes, "10.0.0.2", "fd00::2", true},
		{nodes, "10.0.0.2", "10.0.0.4", false},
		{nodes, "10.0.0.2", "127.0.0.1", false},
		{nodes, "127.0.0.1", "127.0.0.5", true},
		{nil, "10.0.0.2", "10.0.0.4", true},
	} {
		if got := tcpstore.NewPeers(c.addrs, addr(c.own)).Has(addr(c.from)); got != c.want {
			t.Errorf("%s at the store of %s: %v, want %v", c.from, c.own, got, c.want)
		}
	}
}
