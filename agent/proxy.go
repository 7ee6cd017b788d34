package agent

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
	servedStore
	root netip.AddrPort
	// ended is closed when it has ended, as it does with the store or the connection to that.
	ended chan struct{}
}

// proxySuffix follows the name of a store in that of its proxy at a keeper.
const proxySuffix = "/proxy"

func newProxy(served servedStore, root netip.AddrPort) *proxy {
	p := &proxy{servedStore: served, root: root, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for range served.Changes() { // the store's own node reports them
		}
	}()
	return p
}

// addr is where the ranks find it; no address without a proxy.
func (p *proxy) addr() netip.AddrPort {
	if p == nil {
		return netip.AddrPort{}
	}
	return p.Addr()
}

// proxyFor returns where the ranks of an attempt find their proxy, if they are to have one. Ranks
// of other attempts keep the proxy that they have: they have no other way to the store.
func (s *jobStore) proxyFor(o job.Start) (at netip.AddrPort, err error) {
	if !s.job.work.Task.ProxyStore || o.Group.NodeRank == o.World.FirstNode {
		return at, nil
	}
	addr, err := netip.ParseAddr(o.World.MasterAddr)
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store: %w", err)
	}
	root := netip.AddrPortFrom(addr, uint16(o.World.MasterPort))
	if s.proxy.serves(root) && o.World.Groups == 0 && s.job.othersLive(o.Unit) {
		return s.proxy.addr(), nil
	}
	s.closeProxy()
	var served servedStore
	l, err := s.job.listen(s.job.node.session.Node.Addr.String(), 0)
	if err == nil {
		served, err = s.serveProxy(l, root, connectionsPerRank*o.World.LocalSize)
	}
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store at %v: %w", root, err)
	}
	s.proxy = newProxy(served, root)
	return s.proxy.addr(), nil
}

// serves reports whether it lives and passes requests on to the store at root.
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

// othersLive reports whether ranks of another unit live here.
func (j *jobOnNode) othersLive(unit int) bool {
	for id, a := range j.attempts {
		select {
		case <-a.gone:
		default:
			if id != unit {
				return true
			}
		}
	}
	return false
}

// serveProxy serves a proxy to the ranks of this node alone.
func (s *jobStore) serveProxy(l net.Listener, root netip.AddrPort, maxClients int) (servedStore, error) {
	node := s.job.node.session.Node
	local := append([]netip.Addr{node.Addr, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, node.Others...)
	if k := s.job.node.starter.Keeper; k != nil {
		defer l.Close()
		data, err := json.Marshal(root)
		if err != nil {
			return nil, err
		}
		kept, err := k.Proxy(s.name+proxySuffix, l.(*net.TCPListener), root, local, node.Addr, data)
		if err != nil {
			return nil, err
		}
		kept.Bound(maxClients)
		return kept, nil
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Root: root, Allow: tcpstore.NewPeers(local, node.Addr).Has, MaxClients: func() int { return maxClients }, Warn: s.warn,
	})
}

// resumeProxy goes on with the proxy of an earlier agent.
func (m *membership) resumeProxy(name string, kept *keeper.Store) {
	var root netip.AddrPort
	s := m.storeNamed(name)
	if err := json.Unmarshal(kept.Data, &root); err != nil || s == nil {
		kept.Close()
		return
	}
	s.proxy = newProxy(kept, root)
}

func (s *jobStore) closeProxy() {
	if s.proxy != nil {
		s.proxy.Close()
		s.proxy = nil
	}
}
