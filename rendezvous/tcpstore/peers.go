package tcpstore

import "net/netip"

// Peers are the machines that may use a store, for [Options].
type Peers struct {
	all      bool
	loopback bool
	addrs    map[netip.Addr]bool
}

// NewPeers returns peers with the given addresses. Without addresses, it allows all machines. own
// is the address of the store. If own is a loopback address, all loopback addresses are allowed,
// because clients then connect from one.
func NewPeers(addrs []netip.Addr, own netip.Addr) *Peers {
	p := &Peers{all: len(addrs) == 0, loopback: own.IsLoopback(), addrs: make(map[netip.Addr]bool, len(addrs))}
	for _, a := range addrs {
		p.addrs[a.Unmap().WithZone("")] = true
	}
	return p
}

// Has reports whether a machine may use the store.
func (p *Peers) Has(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	return p.all || p.addrs[from] || p.loopback && from.IsLoopback()
}
