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

// proxy stands for a job's store on a node that does not serve it.
type proxy struct {
	store
	root netip.AddrPort
	// ended is closed when it has ended, as it does when the store ends, or the connection to it.
	ended chan struct{}
}

// proxySuffix follows the ID of a job, which has no "/" in it, where a keeper serves a proxy of its store.
const proxySuffix = "/proxy"

func newProxy(st store, root netip.AddrPort) *proxy {
	p := &proxy{store: st, root: root, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for range st.Changes() { // the store itself tells who is missing
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

// stand has a proxy for the ranks of an attempt, if they are to have one, and returns where it is. Ranks of other attempts go on with
// the one that they have: it is their only way to the store.
func (s *share) stand(o job.Start) (at netip.AddrPort, err error) {
	if !s.work.Task.ProxyStore || o.Group.NodeRank == 0 {
		return at, nil
	}
	addr, err := netip.ParseAddr(o.World.MasterAddr)
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store: %w", err)
	}
	root := netip.AddrPortFrom(addr, uint16(o.World.MasterPort))
	if s.proxy.serves(root) && s.inUse(o.Unit) {
		return s.proxy.addr(), nil
	}
	s.closeProxy()
	var st store
	l, err := s.listen(s.agent.session.Node.Addr.String(), 0)
	if err == nil {
		st, err = s.serveProxy(l, root, perRank*o.World.LocalSize)
	}
	if err != nil {
		return at, fmt.Errorf("cannot serve a proxy of the store at %v: %w", root, err)
	}
	s.proxy = newProxy(st, root)
	return s.proxy.addr(), nil
}

// serves says that it stands for a store, and lives.
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

// inUse says that ranks of another unit than this one live here.
func (s *share) inUse(unit int) bool {
	for id, u := range s.units {
		select {
		case <-u.gone:
		default:
			if id != unit {
				return true
			}
		}
	}
	return false
}

// serveProxy serves one to the ranks of this node alone.
func (s *share) serveProxy(l net.Listener, root netip.AddrPort, most int) (store, error) {
	own := s.agent.session.Node
	here := append([]netip.Addr{own.Addr, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, own.Others...)
	if s.agent.keeper != nil {
		defer l.Close()
		data, err := json.Marshal(root)
		if err != nil {
			return nil, err
		}
		kept, err := s.agent.keeper.Proxy(s.job+proxySuffix, l.(*net.TCPListener), root, here, own.Addr, data)
		if err != nil {
			return nil, err
		}
		kept.Bound(most)
		return kept, nil
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Root: root, Allow: tcpstore.NewPeers(here, own.Addr).Has, MaxClients: func() int { return most }, Warn: s.warnOfStore,
	})
}

// regainProxy goes on with what an agent before this one has left at the keeper.
func (a *life) regainProxy(id string, kept *keeper.Store) {
	var root netip.AddrPort
	s := a.shares[id]
	if err := json.Unmarshal(kept.Data, &root); err != nil || s == nil {
		kept.Close()
		return
	}
	s.proxy = newProxy(kept, root)
}

func (s *share) closeProxy() {
	if s.proxy != nil {
		s.proxy.Close()
		s.proxy = nil
	}
}
