// Package peers says where the several coordinators of one cluster are, and which of them this
// process is.
package peers

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// most bounds the coordinators of one cluster. With seven, a cluster may lose three at the same
// time; more coordinators would make every step of Raft slower.
const most = 7

// Resolve returns the addresses, HOST:PORT, of the coordinators in a list whose entries are
// separated by commas. It skips a host without an address if other hosts have one.
func Resolve(ctx context.Context, list string, defaultPort int) (addrs []string, err error) {
	var unknown error
	for text := range strings.SplitSeq(list, ",") {
		at, err := address.Resolve(ctx, "coordinator", text, defaultPort)
		if errors.Is(err, usage.Kind()) {
			return nil, err
		}
		unknown = errors.Join(unknown, err)
		addrs = append(addrs, at.String())
	}
	if repeated(addrs) {
		return nil, usage.Errorf("coordinators %q: one is listed twice", list)
	}
	if unknown != nil && len(addrs) == 1 {
		return nil, unknown
	}
	return addrs, nil
}

func repeated(addrs []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(addrs)))) < len(addrs)
}

// Parse reads peers, each HOST:PORT or HOST, and returns them with their ports.
func Parse(texts []string, defaultPort int) ([]string, error) {
	var peers []string
	for _, text := range texts {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			host, port = text, strconv.Itoa(defaultPort)
		}
		peers = append(peers, net.JoinHostPort(host, port))
	}
	switch n := len(peers); {
	case n < 3 || n > most || n%2 == 0:
		return nil, usage.Errorf("%d peers: 3, 5 or 7, for one more than half of them must be there", n)
	case repeated(peers):
		return nil, usage.Errorf("peers %s: one is listed twice", strings.Join(peers, ","))
	}
	return peers, nil
}

// Self is this process as one of the peers: its name in their list, and the address at which it
// listens.
type Self struct{ Name, Listen string }

// Find returns which of the peers this process is: the peer that listen names, or else the peer
// whose host is this machine. own returns the address at which others reach this machine.
func Find(
	ctx context.Context, peers []string, listen string, defaultPort int, own func(context.Context) (netip.Addr, error), say func(string),
) (Self, error) {
	here := map[string]string{}
	var found []string
	var unknown error
	for _, peer := range peers {
		at, err := address.Resolve(ctx, "coordinator", peer, defaultPort)
		if err == nil {
			at, err = at.ForOthers(ctx, own, say)
		}
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		addr, ours, err := address.Own(at.Addrs)
		switch {
		case err != nil:
			return Self{}, err
		case ours:
			here[peer] = netip.AddrPortFrom(addr, uint16(at.Port)).String()
			found = append(found, peer)
		}
	}
	if listen != "" {
		at, err := address.Resolve(ctx, "coordinator", listen, defaultPort)
		if err != nil {
			return Self{}, err
		}
		name := at.String()
		if !slices.Contains(peers, name) {
			return Self{}, usage.Errorf("listen %q: it is none of the peers %s", listen, strings.Join(peers, ","))
		}
		return Self{name, cmp.Or(here[name], name)}, nil
	}
	switch len(found) {
	case 1:
		return Self{found[0], here[found[0]]}, nil
	case 0:
		return Self{}, errors.Join(usage.Errorf("peers %s: none of them is this machine; say which with --listen", strings.Join(peers, ",")), unknown)
	}
	return Self{}, usage.Errorf("peers %s: this machine is several of them; say which with --listen", strings.Join(found, ","))
}
