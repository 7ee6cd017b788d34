package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/placement"
)

// meet runs a job whose every node runs this same command: whoever owns the rendezvous address leads, the others join.
func (h *here) meet(ctx context.Context) (Result, error) {
	at, code, err := h.meeting(ctx)
	if err == nil && h.job.Resources.MaxNodes > 1 {
		at, err = at.ForOthers(ctx, h.job.headAddr, h.say)
	}
	if err != nil {
		return Result{Code: code}, err
	}
	token, err := h.job.token()
	if err != nil {
		return Result{}, err
	}
	node, err := h.offer(ctx, false)
	if err != nil {
		return Result{}, err
	}
	own, ours, err := address.Own(at.Addrs)
	if err != nil {
		return Result{}, err
	}
	id := h.identity(node)
	m := membership{Options: session.Options{
		Node: node, Target: at.String(), TLS: mtls.Client(token, id), Dial: address.Dialer(at.String()),
	}}
	// What meets at one port is one job. The host may have another name on each node.
	h.run = "rendezvous at port " + strconv.Itoa(at.Port)
	join := func() (Result, error) {
		return h.join(ctx, node, m.Target, func(_ context.Context, node placement.Node) (membership, error) {
			m.Node, m.TLS = node, mtls.Client(token, h.identity(node))
			m.candidate = h.candidate(node, token, "", m.Target)
			return m, nil
		})
	}
	if !ours {
		return join()
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(own, uint16(at.Port)).String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && foreign(ctx, m):
		return Result{}, fmt.Errorf("port %d of %v is in use%s, which is no golaunch coordinator, or hangs; end it, or choose another port",
			at.Port, own, agent.PortHolder(at.Port))
	case errors.Is(err, syscall.EADDRINUSE):
		return join()
	case err != nil:
		return Result{}, fmt.Errorf("cannot listen on %s: %w", h.job.Network.Rendezvous, err)
	}
	if !m.Node.Addr.IsValid() {
		m.Node.Addr = own
	}
	if name := address.Bridge(own); name != "" && h.job.Resources.MaxNodes > 1 {
		h.lonely = fmt.Sprintf("no other node has come yet: %v is the address of %s, a bridge inside this machine, and others may have the same one of their "+
			"own; give --rendezvous another address of this machine (ip addr lists them), and nodes --interface", own, name)
	}
	m.Dial = address.Dialer(l.Addr().String())
	m.candidate = h.candidate(node, token, l.Addr().String(), "")
	return h.begin(ctx, l, mtls.Server(token, id), m)
}

// probeLimit bounds the wait for the holder of a port to begin TLS, as a coordinator does at once.
const probeLimit = 5 * time.Second

// foreign says that what holds the coordinator's port is none. One with another token is one: joining tells more. What does not
// listen yet may become one.
func foreign(ctx context.Context, m membership) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, err := m.Dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, m.TLS).HandshakeContext(ctx)
	return err != nil && !errors.Is(mtls.ExplainClient(err, m.Target, m.TLS), mtls.ErrToken)
}

// orForever is a limit that 0 takes away.
func orForever(d time.Duration) time.Duration {
	if d == 0 {
		return math.MaxInt64
	}
	return d
}
