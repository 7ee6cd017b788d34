package keeper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// TestAProxyOutlivesItsAgent checks that an agent finds its predecessor's proxy, and that the proxy
// serves the same store. The agent notices the end of the proxy, even if the agent comes only
// later.
func TestAProxyOutlivesItsAgent(t *testing.T) {
	dir, own := t.TempDir(), netip.MustParseAddr("127.0.0.1")
	listen := func() *net.TCPListener {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		must(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	root, err := tcpstore.Serve(listen(), tcpstore.Options{})
	must(t, err)
	defer root.Close()
	begin := func() *Keeper {
		k, err := Open(dir, func(err error) { t.Log(err) })
		must(t, err)
		k.Renew(procfs.BootTime() + long)
		return k
	}
	k := begin()
	at, err := k.Proxy("job/proxy", listen(), root.Addr(), []netip.Addr{own}, own, []byte("where"))
	must(t, err)
	at.Bound(8)
	c, err := tcpstore.Dial(t.Context(), at.Addr(), patience)
	must(t, err)
	defer c.Close()
	must(t, c.Set(t.Context(), "key", []byte("value")))
	must(t, k.Leave())

	if value, err := c.Get(t.Context(), "key"); string(value) != "value" || err != nil {
		t.Errorf("while there is no agent the proxy has %q, %v", value, err)
	}
	k = begin()
	left := k.Left.Stores["job/proxy"]
	if left == nil || left.Addr() != at.Addr() || string(left.Data) != "where" {
		t.Fatalf("the next agent finds %+v", k.Left.Stores)
	}
	root.Close()
	for range left.Changes() { // the loop ends with the proxy
	}
	must(t, k.Leave())
	k = open(t, dir)
	left = k.Left.Stores["job/proxy"]
	for range left.Changes() { // the proxy has ended
	}
	left.Close()
}

// TestPeersInPieces has a store with more nodes than one message can have. All of them count,
// including the first and the last.
func TestPeersInPieces(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.2")
	peers := make([]netip.Addr, 2*maxPeers+1)
	for i := range peers {
		peers[i] = netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)})
	}
	k := open(t, t.TempDir(), "it is not a node of the job")
	comes := func(s *Store, want bool) {
		t.Helper()
		s.Status() // the keeper handles this order after the earlier ones
		limit := patience
		if !want {
			limit = 200 * time.Millisecond
		}
		c, err := tcpstore.Dial(t.Context(), s.Addr(), limit)
		if err == nil {
			c.Close()
		}
		if (err == nil) != want {
			t.Errorf("a client has connected: %v; want %t", err, want)
		}
	}
	for i, at := range []int{0, maxPeers, 2 * maxPeers} {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		must(t, err)
		was := peers[at]
		peers[at] = netip.MustParseAddr("127.0.0.1")
		s, err := k.Serve(fmt.Sprint("job", i), l, peers, own, nil)
		must(t, errors.Join(err, l.Close()))
		comes(s, true)
		if peers[at] = was; i == 0 {
			s.Admit(peers, own)
			comes(s, false)
		}
		s.Close()
	}
}
