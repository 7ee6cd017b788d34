package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/mtls"
)

// meet runs a job whose every node runs this same command: whoever owns the rendezvous address leads, the others join.
func (h *here) meet(ctx context.Context) (Result, error) {
	at, err := resolve(ctx, h.job.Rendezvous)
	if err == nil && h.job.Request.MaxNodes > 1 {
		at, err = at.reachable()
	}
	if err != nil {
		return Result{}, err
	}
	token, err := mtls.LoadToken(h.job.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return Result{}, err
	}
	node, err := h.job.thisNode(ctx)
	if err != nil {
		return Result{}, err
	}
	own, ours, err := owns(at.addrs)
	if err != nil {
		return Result{}, err
	}
	id := mtls.Identity{Node: node.Name, Job: h.job.ID}
	m := membership{node: node, target: h.job.Rendezvous, tls: mtls.Client(token, id), dial: dialTCP(at.host, at.port)}
	if !ours {
		return h.join(ctx, m)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(own, uint16(at.port)).String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return h.joinHere(ctx, m, own, at.port)
	case err != nil:
		return Result{}, fmt.Errorf("cannot listen on %s: %w", h.job.Rendezvous, err)
	}
	if !m.node.Addr.IsValid() {
		m.node.Addr = own
	}
	m.dial = dialTCP(own.String(), at.port)
	return h.lead(ctx, leadership{listener: l, tls: mtls.Server(token, id), agents: func(ctx context.Context) error {
		return h.work(ctx, m)
	}})
}

// joinHere joins another golaunch on this machine, and refuses to wait for something else that holds the port.
func (h *here) joinHere(ctx context.Context, m membership, own netip.Addr, port int) (Result, error) {
	if foreign(ctx, m) {
		return Result{}, fmt.Errorf("port %d of %v is in use%s, which is no golaunch coordinator, or hangs; end it, or choose another port",
			port, own, agent.PortHolder(port))
	}
	return h.join(ctx, m)
}

// probeLimit bounds the wait for the holder of a port to begin TLS, as a coordinator does at once.
const probeLimit = 5 * time.Second

// foreign says that what holds the coordinator's port is none. One with another token is one: joining tells more. What does not
// listen yet may become one.
func foreign(ctx context.Context, m membership) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, err := m.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, m.tls).HandshakeContext(ctx)
	return err != nil && !errors.Is(mtls.ExplainClient(err, m.target, m.tls), mtls.ErrToken)
}

// errLate says that no coordinator answered within the placement timeout.
var errLate = errors.New("no coordinator came in time, see --placement-timeout")

// join takes part in a job that another node leads, and ends as it does. A stop makes this node leave the job in order, with the
// exit code of the signal.
func (h *here) join(ctx context.Context, m membership) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := newFollower(cancel)
	m.signals, m.leave, m.welcomed = f.pass, f.leave, f.welcomed
	if h.job.PlacementTimeout > 0 {
		late := time.AfterFunc(h.job.PlacementTimeout, func() { cancel(errLate) })
		m.welcomed = func() { late.Stop(); f.welcomed() }
	}
	go f.follow(h.job.Signals, h.left)
	h.say(m.node.Name + " asks to join at " + m.target)
	result, err := h.agent(ctx, m)
	switch {
	case errors.Is(err, errLate):
		result.Code = 124
	case err != nil:
		result.Code = f.code()
	}
	return result, err
}

// dialTCP resolves the host anew each time and tries all its addresses.
func dialTCP(host string, port int) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
}
