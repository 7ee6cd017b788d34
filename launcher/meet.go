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
	m := membership{node: node, target: h.job.Rendezvous, tls: mtls.Client(token, id), dial: dialAny(at)}
	if !ours {
		return h.join(ctx, m)
	}
	listen := netip.AddrPortFrom(own, uint16(at.port)).String()
	l, err := net.Listen("tcp", listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && foreign(ctx, listen, m.tls):
		return Result{}, fmt.Errorf("port %d of %v is in use%s, which is no golaunch coordinator, or hangs; end it, or choose another port",
			at.port, own, agent.PortHolder(at.port))
	case errors.Is(err, syscall.EADDRINUSE): // another golaunch on this machine leads
		return h.join(ctx, m)
	case err != nil:
		return Result{}, fmt.Errorf("cannot listen on %s: %w", h.job.Rendezvous, err)
	}
	if !m.node.Addr.IsValid() {
		m.node.Addr = own
	}
	m.dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
	return h.lead(ctx, leadership{listener: l, tls: mtls.Server(token, id), agents: func(ctx context.Context) error {
		return h.work(ctx, m)
	}})
}

// probeLimit bounds the wait for the holder of a port to begin TLS, as a coordinator does at once.
const probeLimit = 5 * time.Second

// foreign says that a port of this machine is held by something that is no coordinator. One with another token is one: joining
// tells more. So may be what does not listen yet.
func foreign(ctx context.Context, at string, config *tls.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, config).HandshakeContext(ctx)
	return err != nil && !errors.Is(mtls.ExplainClient(err, at, config), mtls.ErrToken)
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
	if !h.job.Quiet {
		h.console.Say("%s asks to join at %s", m.node.Name, m.target)
	}
	result, err := h.agent(ctx, m)
	switch {
	case errors.Is(err, errLate):
		result.Code = 124
	case err != nil:
		result.Code = f.code()
	}
	return result, err
}

// dialAny tries the addresses one after the other.
func dialAny(at endpoint) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var errs []error
		for _, addr := range at.addrs {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(at.port)))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}
