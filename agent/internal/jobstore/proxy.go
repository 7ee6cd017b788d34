package jobstore

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// proxy passes requests on to a job's store on another node.
type proxy struct {
	service
	root netip.AddrPort
	// ended is closed when the proxy has ended: by itself, with the store, or with its connection
	// to the store.
	ended chan struct{}
}

// proxySuffix follows the name of a store in the name of the store's proxy at a keeper.
const proxySuffix = "/proxy"

func newProxy(to service, root netip.AddrPort) *proxy {
	p := &proxy{service: to, root: root, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for range to.Changes() { // the store's own node reports the changes
		}
	}()
	return p
}

// addr is where the ranks find the proxy. It is the zero AddrPort without a proxy.
func (p *proxy) addr() netip.AddrPort {
	if p == nil {
		return netip.AddrPort{}
	}
	return p.Addr()
}

// ProxyFor returns where the ranks of an attempt find their proxy, if they are to have one. Ranks
// of other attempts keep the proxy that they have, because they have no other way to the store.
func (s *Store) ProxyFor(o job.Start) (at netip.AddrPort, err error) {
	if !s.host.Wants().Proxy || o.Group.NodeRank == o.World.FirstNode {
		return at, nil
	}
	addr, err := netip.ParseAddr(o.World.MasterAddr)
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store: %w", err)
	}
	root := netip.AddrPortFrom(addr, uint16(o.World.MasterPort))
	if s.proxy.serves(root) && o.World.Groups == 0 && s.host.OthersLive(o.Unit) {
		return s.proxy.addr(), nil
	}
	s.closeProxy()
	var to service
	l, err := s.host.Listen(s.host.Addr.String(), 0)
	if err == nil {
		to, err = s.serveProxy(l, root, connectionsPerRank*o.World.LocalSize)
	}
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store at %v: %w", root, err)
	}
	s.proxy = newProxy(to, root)
	return s.proxy.addr(), nil
}

// serves reports whether the proxy lives and passes requests on to the store at root.
func (p *proxy) serves(root netip.AddrPort) bool {
	if p == nil || p.root != root {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// serveProxy serves a proxy that only the ranks of this node may use.
func (s *Store) serveProxy(l net.Listener, root netip.AddrPort, maxClients int) (service, error) {
	local := append([]netip.Addr{s.host.Addr, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, s.host.Others...)
	if k := s.host.Keeper; k != nil {
		defer l.Close()
		data, err := json.Marshal(root)
		if err != nil {
			return nil, err
		}
		kept, err := k.Proxy(s.name+proxySuffix, l.(*net.TCPListener), root, local, s.host.Addr, data)
		if err != nil {
			return nil, err
		}
		kept.Bound(maxClients)
		return kept, nil
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Root: root, Allow: tcpstore.NewPeers(local, s.host.Addr).Has, MaxClients: func() int { return maxClients }, Warn: s.warn,
	})
}

// ProxyAddr returns where the ranks find their proxy, or no address if they have none.
func (s *Store) ProxyAddr() netip.AddrPort { return s.proxy.addr() }

// resumeProxy adopts the proxy of an earlier agent.
func (s *Store) resumeProxy(kept *keeper.Store) bool {
	var root netip.AddrPort
	if err := json.Unmarshal(kept.Data, &root); err != nil {
		return false
	}
	s.proxy = newProxy(kept, root)
	return true
}

func (s *Store) closeProxy() {
	if s.proxy != nil {
		s.proxy.Close()
		s.proxy = nil
	}
}
