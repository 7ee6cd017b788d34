package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/placement"
)

// meet runs a job whose every node runs this same command: whoever owns the rendezvous address leads, the others join.
func (h *here) meet(ctx context.Context) (Result, error) {
	addrs, port, err := endpoint(ctx, h.job.Rendezvous)
	if err != nil {
		return Result{}, err
	}
	token, err := h.job.token()
	if err != nil {
		return Result{}, err
	}
	node, err := h.job.thisNode(ctx)
	if err != nil {
		return Result{}, err
	}
	own, ours, err := owns(addrs)
	if err != nil {
		return Result{}, err
	}
	id := mtls.Identity{Node: node.Name, Job: h.job.ID}
	if ours {
		l, err := net.Listen("tcp", netip.AddrPortFrom(own, uint16(port)).String())
		switch {
		case err == nil:
			if !node.Addr.IsValid() {
				node.Addr = own
			}
			return h.host(ctx, l, token, node)
		case !errors.Is(err, syscall.EADDRINUSE):
			return Result{}, fmt.Errorf("cannot listen on %s: %w", h.job.Rendezvous, err)
		}
		// Another golaunch on this machine leads, or something else holds the port: joining will tell.
	}
	return h.join(ctx, membership{
		node: node, target: h.job.Rendezvous, tls: mtls.Client(token, id), dial: dialAny(addrs, port),
	})
}

// host leads the job and takes part in it.
func (h *here) host(ctx context.Context, l net.Listener, token mtls.Token, node placement.Node) (Result, error) {
	id := mtls.Identity{Node: node.Name, Job: h.job.ID}
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
	return h.lead(ctx, leadership{listener: l, tls: mtls.Server(token, id), agents: func(ctx context.Context) error {
		return h.work(ctx, membership{node: node, target: h.job.Rendezvous, tls: mtls.Client(token, id), dial: dial})
	}})
}

// join takes part in a job that another node leads, and ends as it does. A stop makes this node leave the job in order.
func (h *here) join(ctx context.Context, m membership) (Result, error) {
	pass, leave := make(chan syscall.Signal, 8), make(chan string, 2)
	m.signals, m.leave = pass, leave
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go h.follow(pass, leave, cancel)
	if !h.job.Quiet {
		h.console.Say("%s asks to join at %s", m.node.Name, m.target)
	}
	return h.agent(ctx, m)
}

// follow passes on what this process is told while another node leads: the first stop makes this node leave in order, the second
// kills its ranks.
func (h *here) follow(pass chan<- syscall.Signal, leave chan<- string, kill func()) {
	stops := 0
	for {
		select {
		case <-h.left:
			return
		case s := <-h.job.Signals:
			sig, ok := s.(syscall.Signal)
			switch {
			case ok && passedOn(sig):
				pass <- sig
			case stops > 0:
				kill()
			default:
				leave <- "got " + name(s)
				stops++
			}
		}
	}
}

// dialAny tries the addresses one after the other.
func dialAny(addrs []netip.Addr, port int) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var errs []error
		for _, addr := range addrs {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(port)))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}

// token is the nodes' shared secret, made at the first use.
func (j Job) token() (mtls.Token, error) {
	path := j.TokenFile
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return mtls.Token{}, fmt.Errorf("no home directory for the token: %w; give --token-file", err)
		}
		path = filepath.Join(home, ".golaunch", "token")
	}
	return mtls.LoadToken(path, os.Getenv("GOLAUNCH_TOKEN"))
}
