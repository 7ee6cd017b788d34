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
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/door"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// scheduled runs a job on nodes that a scheduler started, each with this same command and with its
// position among the nodes. Node 0 leads the job. The other nodes find it at the port that the
// scheduler chose, or else through the job's door.
func (l *localRun) scheduled(ctx context.Context) (report.Result, error) {
	node, err := l.examinedNode(ctx, false)
	if err != nil {
		return report.Result{}, err
	}
	l.files.ID = l.job.place.Job
	if p := l.job.place; p.Node > 0 {
		target := p.Head
		if p.Port > 0 {
			target = net.JoinHostPort(p.Head, strconv.Itoa(p.Port))
		}
		l.process.Muted = p.Port == 0 // then all nodes share one console, on which node 0 reports
		return l.role().Join(ctx, node, target, l.find)
	}
	if node.Addr, err = address.Reachable(ctx, node); err != nil {
		return report.Result{}, err
	}
	return l.head(ctx, node)
}

// head runs node 0, which leads the job.
func (l *localRun) head(ctx context.Context, node placement.Node) (report.Result, error) {
	l.holdsMore(ctx)
	if err := l.pack(); err != nil {
		return report.Result{}, err
	}
	p := l.job.place
	if p.Port == 0 && l.job.Resources.PlacementTimeout == 0 {
		l.job.Resources.PlacementTimeout = startLimit
	}
	if l.job.place.Slurm() {
		l.nobodyHint = fmt.Sprintf("no other node has come yet: Slurm has started this step with a task on each of %d nodes; if golaunch runs in that "+
			"of %s alone, as in a shell of srun --pty, use salloc instead, or --scheduler none for this node alone", p.Nodes, node.Name)
	}
	sealed := p.Port == 0 && l.job.sealable()
	token, err := mtls.NewToken(), error(nil)
	if !sealed {
		token, err = l.job.token()
	}
	if err != nil {
		return report.Result{}, err
	}
	var listener net.Listener
	if p.Port == 0 {
		listener, err = l.job.Network.ports().Listen(ctx, node.Addr.String())
	} else {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(node.Addr, uint16(p.Port)).String())
	}
	if err != nil {
		return report.Result{}, fmt.Errorf("cannot listen for the other nodes: %w", err)
	}
	if p.Port == 0 {
		d, err := l.job.door().Open(node.Addr, listener.Addr(), token, sealed, l.Warn)
		if err != nil {
			return report.Result{}, errors.Join(err, listener.Close())
		}
		defer d.Close()
	}
	m := l.member(node, listener.Addr().String(), token)
	m.Candidate = l.candidate(node, token, listener.Addr().String(), "")
	return l.role().Begin(ctx, listener, mtls.Server(token, l.identity(node)), m)
}

// find returns how this node joins the job at node 0.
func (l *localRun) find(ctx context.Context, node placement.Node) (role.Member, error) {
	p := l.job.place
	head := l.headHost(ctx)
	at := door.Answer{Coordinator: net.JoinHostPort(head, strconv.Itoa(p.Port))}
	if p.Port == 0 {
		var err error
		if at, err = l.job.door().Knock(ctx, head, func(text string) { l.Warn(errors.New(text)) }); err != nil {
			return role.Member{}, err
		}
	}
	if at.Token == nil {
		token, err := l.job.token()
		if err != nil {
			return role.Member{}, err
		}
		at.Token = &token
	}
	m := l.member(node, at.Coordinator, *at.Token)
	home := ""
	if p.Port > 0 {
		home = at.Coordinator
	}
	m.Candidate = l.candidate(node, *at.Token, "", home)
	return m, nil
}

// headHost returns the host name of node 0. If this node cannot resolve the name, it returns the
// address that Slurm has for node 0.
func (l *localRun) headHost(ctx context.Context) string {
	p := l.job.place
	if !l.job.place.Slurm() || address.Resolves(ctx, p.Head) {
		return p.Head
	}
	addr := slurm.NodeAddr(ctx, p.Head)
	if addr == "" {
		return p.Head
	}
	l.Note(fmt.Sprintf("this node cannot resolve %s; Slurm has it at %s (NodeAddr)", p.Head, addr))
	return addr
}

func (j Job) door() door.Door { return door.Door{Job: j.place.Job, Ports: j.Network.ports()} }

// sealable reports whether munge can carry a new token: munge is installed, and the user gave no
// token.
func (j Job) sealable() bool {
	return j.Network.TokenFile == "" && os.Getenv("GOLAUNCH_TOKEN") == "" && munge.Installed()
}
