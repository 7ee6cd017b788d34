package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/door"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/placement"
)

// together runs a job whose every node was started with this same command by a scheduler, which has told each its position: node 0
// leads, at the port that is meant for that or behind the job's door.
func (h *here) together(ctx context.Context) (Result, error) {
	node, err := h.offer(ctx, false)
	if err != nil {
		return Result{}, err
	}
	h.run = h.job.place.Job
	if p := h.job.place; p.Node > 0 {
		target := p.Head
		if p.Port > 0 {
			target = net.JoinHostPort(p.Head, strconv.Itoa(p.Port))
		}
		h.muted = p.Port == 0 // they have one console, where node 0 says it
		return h.join(ctx, node, target, h.find)
	}
	if node.Addr, err = address.Reachable(ctx, node); err != nil {
		return Result{}, err
	}
	return h.head(ctx, node)
}

// head is node 0's part.
func (h *here) head(ctx context.Context, node placement.Node) (Result, error) {
	h.holdsMore(ctx)
	p := h.job.place
	if p.Port == 0 && h.job.Resources.PlacementTimeout == 0 {
		h.job.Resources.PlacementTimeout = startLimit
	}
	if h.job.inSlurm() {
		h.lonely = fmt.Sprintf("no other node has come yet: Slurm has started this step with a task on each of %d nodes; if golaunch runs in that of %s alone, "+
			"as in a shell of srun --pty, use salloc instead, or --scheduler none for this node alone", p.Nodes, node.Name)
	}
	sealed := p.Port == 0 && h.job.sealable()
	token, err := mtls.NewToken(), error(nil)
	if !sealed {
		token, err = h.job.token()
	}
	if err != nil {
		return Result{}, err
	}
	var l net.Listener
	if p.Port == 0 {
		l, err = h.job.Network.ports().Listen(ctx, node.Addr.String())
	} else {
		l, err = net.Listen("tcp", netip.AddrPortFrom(node.Addr, uint16(p.Port)).String())
	}
	if err != nil {
		return Result{}, fmt.Errorf("cannot listen for the other nodes: %w", err)
	}
	if p.Port == 0 {
		d, err := h.job.door().Open(node.Addr, l.Addr(), token, sealed, h.warn)
		if err != nil {
			return Result{}, errors.Join(err, l.Close())
		}
		defer d.Close()
	}
	m := h.member(node, l.Addr().String(), token)
	m.candidate = h.candidate(node, token, l.Addr().String(), "")
	return h.begin(ctx, l, mtls.Server(token, h.identity(node)), m)
}

// find says how to join node 0.
func (h *here) find(ctx context.Context, node placement.Node) (membership, error) {
	p := h.job.place
	head := h.headHost(ctx)
	at := door.Answer{Coordinator: net.JoinHostPort(head, strconv.Itoa(p.Port))}
	if p.Port == 0 {
		var err error
		if at, err = h.job.door().Knock(ctx, head, func(text string) { h.warn(errors.New(text)) }); err != nil {
			return membership{}, err
		}
	}
	if at.Token == nil {
		token, err := h.job.token()
		if err != nil {
			return membership{}, err
		}
		at.Token = &token
	}
	m := h.member(node, at.Coordinator, *at.Token)
	home := ""
	if p.Port > 0 {
		home = at.Coordinator
	}
	m.candidate = h.candidate(node, *at.Token, "", home)
	return m, nil
}

// headHost is where node 0 is: its name, or if that means nothing here, the address by which Slurm knows it.
func (h *here) headHost(ctx context.Context) string {
	p := h.job.place
	if p.By != "Slurm" {
		return p.Head
	}
	if address.Resolves(ctx, p.Head) {
		return p.Head
	}
	addr := slurm.NodeAddr(ctx, p.Head)
	if addr == "" {
		return p.Head
	}
	h.say(fmt.Sprintf("the name %s means nothing on this node; Slurm has it at %s (NodeAddr)", p.Head, addr))
	return addr
}

// member is the membership of a node whose coordinator is at HOST:PORT. The host's name may not be known yet.
func (h *here) member(node placement.Node, target string, token mtls.Token) membership {
	return membership{Options: session.Options{
		Node: node, Target: target, TLS: mtls.Client(token, h.identity(node)),
		Dial: address.Dialer(target),
	}}
}

func (h *here) identity(node placement.Node) mtls.Identity {
	return mtls.Identity{Node: node.Name, Job: h.job.ID}
}

func (j Job) door() door.Door { return door.Door{Job: j.place.Job, Ports: j.Network.ports()} }

// sealable reports whether munge can carry a new token, because the user gave none.
func (j Job) sealable() bool {
	return j.Network.TokenFile == "" && os.Getenv("GOLAUNCH_TOKEN") == "" && munge.Installed()
}
