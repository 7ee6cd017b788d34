package launcher

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/rendezvous"
)

// maxPeers bounds the coordinators of one cluster: of seven, three may be lost at the same time, and each more makes every step slower.
const maxPeers = 7

// heads are where the coordinators of a list listen, HOST:PORT each. A host that cannot be looked up does not matter while another can be.
func heads(ctx context.Context, list string) (addrs []string, err error) {
	var unknown error
	for text := range strings.SplitSeq(list, ",") {
		at, err := resolve(ctx, text, DefaultPort)
		switch {
		case errors.Is(err, ErrUsage):
			return nil, err
		case err != nil:
			unknown = errors.Join(unknown, err)
		}
		addrs = append(addrs, net.JoinHostPort(at.host, strconv.Itoa(at.port)))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(addrs)))) < len(addrs) {
		return nil, usage("coordinators %q: one is there twice", list)
	}
	if unknown != nil && len(addrs) == 1 {
		return nil, unknown
	}
	return addrs, nil
}

// seat is a coordinator among its peers: its name in their list, and where it listens.
type seat struct{ own, listen string }

// ours is which of the peers this process is: the one that it is to listen as, or else the one whose host is this machine.
func (c Coordinator) ours(ctx context.Context, peers []string) (seat, error) {
	here := map[string]string{}
	var found []string
	var unknown error
	for _, peer := range peers {
		at, err := resolve(ctx, peer, DefaultPort) // they have their ports
		if err == nil {
			at, err = at.reachable(ctx, Job{}, c.Say)
		}
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		addr, is, err := owns(at.addrs)
		switch {
		case err != nil:
			return seat{}, err
		case is:
			here[peer] = netip.AddrPortFrom(addr, uint16(at.port)).String()
			found = append(found, peer)
		}
	}
	if c.Listen != "" {
		at, err := resolve(ctx, c.Listen, coordinatorPort(c.ports))
		if err != nil {
			return seat{}, err
		}
		own := net.JoinHostPort(at.host, strconv.Itoa(at.port))
		if !slices.Contains(peers, own) {
			return seat{}, usage("listen %q: it is none of the peers %s", c.Listen, strings.Join(peers, ","))
		}
		return seat{own, cmp.Or(here[own], own)}, nil
	}
	switch len(found) {
	case 1:
		return seat{found[0], here[found[0]]}, nil
	case 0:
		return seat{}, errors.Join(usage("peers %s: none of them is this machine; say which with --listen", strings.Join(peers, ",")), unknown)
	}
	return seat{}, usage("peers %s: this machine is several of them; say which with --listen", strings.Join(found, ","))
}

// listOf are the peers as the user has them, with their ports.
func (c Coordinator) listOf() ([]string, error) {
	var peers []string
	for _, text := range c.Peers {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			host, port = text, strconv.Itoa(coordinatorPort(c.ports))
		}
		peers = append(peers, net.JoinHostPort(host, port))
	}
	switch n := len(peers); {
	case n < 3 || n > maxPeers || n%2 == 0:
		return nil, usage("%d peers: 3, 5 or 7, for one more than half of them must be there", n)
	case len(slices.Compact(slices.Sorted(slices.Values(peers)))) < n:
		return nil, usage("peers %s: one is there twice", strings.Join(peers, ","))
	}
	return peers, nil
}

// candidate is this coordinator, of several.
func (c Coordinator) candidate(own string, peers []string, token mtls.Token, file *rendezvous.File, lease time.Duration) *rendezvous.Candidate {
	id := mtls.Identity{}
	return rendezvous.NewCandidate(rendezvous.CandidateConfig{
		Node: own, Addr: own, Peers: peers, File: file, Lease: lease, Server: mtls.Server(token, id), Client: mtls.Client(token, id),
		Facts: map[string]string{"--peers": strings.Join(peers, ",")}, Note: c.Say, Warn: c.Warn,
	})
}
