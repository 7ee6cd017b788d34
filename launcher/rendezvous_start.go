package launcher

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// meet runs a job whose every node runs this same command. The node that has the rendezvous address
// leads the job, and the other nodes join it.
func (l *localRun) meet(ctx context.Context) (report.Result, error) {
	at, code, err := l.rendezvous(ctx)
	if err == nil && l.job.Resources.MaxNodes > 1 {
		at, err = at.ForOthers(ctx, l.job.machine().Reachable, l.Note)
	}
	if err != nil {
		return report.Result{Code: code}, err
	}
	token, err := l.job.token()
	if err != nil {
		return report.Result{}, err
	}
	node, err := l.examinedNode(ctx, false)
	if err != nil {
		return report.Result{}, err
	}
	own, ours, err := address.Own(at.Addrs)
	if err != nil {
		return report.Result{}, err
	}
	// All nodes that meet at one port belong to one job. The ID does not contain the host, because
	// each node may use another name for it.
	l.files.ID = "rendezvous at port " + strconv.Itoa(at.Port)
	m := l.member(node, at.String(), token)
	join := func() (report.Result, error) {
		return l.role().Join(ctx, node, m.Target, func(_ context.Context, node placement.Node) (role.Member, error) {
			m := l.member(node, at.String(), token)
			m.Candidate = l.candidate(node, token, "", m.Target)
			return m, nil
		})
	}
	if !ours {
		return join()
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(own, uint16(at.Port)).String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && foreign(ctx, m):
		return report.Result{}, fmt.Errorf("port %d of %v is in use%s, which is no golaunch coordinator, or hangs; end it, or choose another port",
			at.Port, own, agent.PortHolder(at.Port))
	case errors.Is(err, syscall.EADDRINUSE):
		return join()
	case err != nil:
		return report.Result{}, fmt.Errorf("cannot listen on %s: %w", l.job.Network.Rendezvous, err)
	}
	if err := l.pack(); err != nil {
		return report.Result{}, errors.Join(err, listener.Close())
	}
	if !m.Node.Addr.IsValid() {
		m.Node.Addr = own
	}
	switch name := address.Bridge(own); {
	case l.job.Resources.MaxNodes == 1:
	case own.IsLoopback():
		l.nobodyHint = fmt.Sprintf("no other node has come yet: only processes of this machine reach %v; if the nodes are on several machines, give an address "+
			"of this one (--rendezvous; under torchrun --rdzv-endpoint or --master-addr)", own)
	case name != "":
		l.nobodyHint = fmt.Sprintf("no other node has come yet: %v is the address of %s, a bridge inside this machine, and others may have the same one "+
			"of their own; give --rendezvous another address of this machine (ip addr lists them), and nodes --interface", own, name)
	}
	m.Dial = address.Dialer(listener.Addr().String())
	m.Candidate = l.candidate(node, token, listener.Addr().String(), "")
	return l.role().Begin(ctx, listener, mtls.Server(token, l.identity(node)), m)
}

// rendezvous returns the address where the nodes meet. In a pod it waits for the name, which may be
// unknown until the named pod runs. With an error, code is the exit code; 0 means the usual exit
// code for the error.
func (l *localRun) rendezvous(ctx context.Context) (at address.Endpoint, code int, err error) {
	n := l.job.Network
	resolve := func(ctx context.Context) (address.Endpoint, error) {
		return address.Resolve(ctx, "rendezvous", n.Rendezvous, coordinatorPort(n.ports()))
	}
	if at, err = resolve(ctx); !pod.Unresolved(err) {
		return at, 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := cmp.Or(l.job.Resources.PlacementTimeout, pod.NameLimit)
	defer time.AfterFunc(limit, func() { cancel(role.ErrLate) }).Stop()
	stopped := signals.During(l.job.Stopping.Signals, cancel)
	at, err = pod.Retry(ctx, l.Warn, at, err, resolve)
	switch code := stopped(); {
	case code != 0:
		return at, code, fmt.Errorf("gave up waiting for the name of %s: %w", n.Rendezvous, context.Cause(ctx))
	case err != nil && errors.Is(context.Cause(ctx), role.ErrLate):
		return at, 124, fmt.Errorf("waited %v: %w", limit, err)
	}
	return at, 0, err
}

// token returns the secret that the nodes share. In a pod it makes no new token, because the other
// pods would not have it.
func (j Job) token() (mtls.Token, error) {
	env := os.Getenv("GOLAUNCH_TOKEN")
	if pod.Inside() && j.Network.TokenFile == "" && env == "" {
		home, err := account.Home()
		if err == nil {
			_, err = os.Stat(filepath.Join(home, ".golaunch", "token"))
		}
		if err != nil {
			return mtls.Token{}, errors.New("this pod has no token that the others share; set GOLAUNCH_TOKEN from a Secret in all of them")
		}
	}
	return mtls.LoadToken(j.Network.TokenFile, env)
}

// probeLimit bounds the wait for the process at a port to answer in TLS. A coordinator answers at
// once.
const probeLimit = 5 * time.Second

// foreign reports whether a process that is no coordinator listens at the coordinator's port. It
// returns false if no process listens yet, and for a coordinator with another token, since an
// attempt to join then gives a better error.
func foreign(ctx context.Context, m role.Member) bool {
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
