package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// resolveLimit bounds a question to the name server.
const resolveLimit = 10 * time.Second

// Endpoint is where a coordinator listens: a host with its addresses, and the port.
type Endpoint struct {
	Host  string
	Addrs []netip.Addr
	Port  int
	// what names the endpoint in errors, such as "rendezvous".
	what string
}

// String is HOST:PORT.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Resolve finds the addresses of HOST:PORT, or of HOST with a default port. Errors call it what.
func Resolve(ctx context.Context, what, text string, defaultPort int) (Endpoint, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		host, portText = text, strconv.Itoa(defaultPort)
	}
	port, err := strconv.Atoi(portText)
	addr, noAddr := netip.ParseAddr(host)
	if err != nil || port < 1 || port > 65535 || noAddr != nil && !wire.ValidName(host) || addr.IsUnspecified() {
		return Endpoint{}, usage.Errorf("%s %q: HOST:PORT that every node can reach, such as n1:29400 or [fd00::1]:29400", what, text)
	}
	e := Endpoint{host, []netip.Addr{addr}, port, what}
	if noAddr == nil {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	if e.Addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return e, fmt.Errorf("%s host %s: %w; use an address, or a name that every node can resolve", what, host, err)
	}
	for i := range e.Addrs {
		e.Addrs[i] = e.Addrs[i].Unmap()
	}
	return e, nil
}

// Resolves reports whether this node can find an address for the host's name.
func Resolves(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	_, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err == nil
}

// ForOthers returns the endpoint with only those addresses that other nodes can reach. Debian's
// /etc/hosts gives a machine's own name the address 127.0.1.1. The endpoint then gets the address
// from own, and say gets a message.
func (e Endpoint) ForOthers(ctx context.Context, own func(context.Context) (netip.Addr, error), say func(string)) (Endpoint, error) {
	if _, err := netip.ParseAddr(e.Host); err == nil || e.Host == "localhost" {
		return e, nil // the user chose this address, not a name
	}
	remote := slices.DeleteFunc(slices.Clone(e.Addrs), netip.Addr.IsLoopback)
	if len(remote) > 0 {
		e.Addrs = remote
		return e, nil
	}
	name, _ := os.Hostname()
	if first, _, _ := strings.Cut(e.Host, "."); name == "" || first != strings.Split(name, ".")[0] {
		return e, fmt.Errorf("%s host %s is %v on this machine (see /etc/hosts), which no other node can reach; use its address",
			e.what, e.Host, e.Addrs[0])
	}
	addr, err := own(ctx)
	if err != nil {
		return e, fmt.Errorf("%s host %s is %v on this machine (see /etc/hosts), and %w", e.what, e.Host, e.Addrs[0], err)
	}
	say(fmt.Sprintf("%s is %v on this machine (see /etc/hosts); the others find it at %v, or else --address or --interface says where",
		e.Host, e.Addrs[0], addr))
	e.Host, e.Addrs = addr.String(), []netip.Addr{addr}
	return e, nil
}

// Dial connects to HOST:PORT. It resolves the host each time and tries all its addresses.
func Dial(ctx context.Context, at string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

// Dialer returns a function that calls [Dial] with this address.
func Dialer(at string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return Dial(ctx, at) }
}
