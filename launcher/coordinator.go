package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/discovery"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/launcher/internal/peers"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/rendezvous"
)

// Coordinator is the head of a cluster: agents join it, and clients submit jobs to it. It uses no
// GPU.
type Coordinator struct {
	// Listen is HOST:PORT, HOST or :PORT. The default host is this machine's address on the default
	// route, or 127.0.0.1; the default port is the first of PortRange, or DefaultPort. Port 0 means
	// a free port.
	Listen string
	// Peers are where the 3, 5 or 7 coordinators of one cluster listen, each as HOST:PORT or HOST.
	// All coordinators have the same list in the same order. The cluster survives the loss of any
	// minority of the coordinators. This coordinator is the peer that Listen names, or the peer
	// whose host is this machine. The cluster begins when all peers have connected; later a
	// majority is enough.
	Peers []string
	// PortRange is FIRST:LAST. Its first port is the default port of Listen and of Peers.
	PortRange string
	// Store is the directory where the coordinator keeps its state, so that it survives a restart;
	// ~/.golaunch/ADDRESS:PORT when empty.
	Store string
	// Lease is as in a Job.
	Lease time.Duration
	// TokenFile is as in a Job.
	TokenFile string
	// Capacity is a file that says which nodes the cluster may ask for when jobs wait
	// (docs/capacity.md). When empty, the cluster asks for no nodes.
	Capacity string
	// Announced lets commands of this user on this machine find the coordinator without its
	// address.
	Announced bool
	// Ready gets the address once agents and clients can connect. The cluster does not wait for
	// Ready, Say and Warn to return: a stopped terminal, or an unread pipe, stops no job.
	Ready func(addr netip.AddrPort)
	// Say gets a line for each node that joins or leaves, and each job that begins or ends.
	Say func(string)
	// Warn gets problems that do not end the cluster; nil prints on os.Stderr.
	Warn func(error)

	// ports is the parsed PortRange.
	ports ports.Range
}

// Serve serves until ctx ends. Jobs do not end then: their ranks live on for a lease. Within that
// time, a coordinator at the same address, with the same store, takes the jobs over.
func (c Coordinator) Serve(ctx context.Context) error {
	c.defaults()
	if c.Lease < time.Second {
		return usage.Errorf("lease %s: at least 1s", c.Lease)
	}
	var err error
	if c.ports, err = portRange(c.PortRange); err != nil {
		return err
	}
	var kinds capacityfile.File
	if c.Capacity != "" {
		if kinds, err = capacityfile.Read(c.Capacity); err != nil {
			return err
		}
		for _, note := range kinds.Notes {
			c.Warn(fmt.Errorf("%s: %s", c.Capacity, note))
		}
	}
	token, err := mtls.LoadToken(c.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		return err
	}
	all, own, err := c.findPeers(ctx)
	if err != nil {
		return err
	}
	l, err := c.listen(ctx)
	if err != nil {
		return err
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	file, dir, err := c.open(cmp.Or(own, at.String()))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	target := cmp.Or(strings.Join(all, ","), at.String())
	capacity, err := provider.Capacity(ctx, c.Capacity, kinds, provider.Cluster{Coordinator: target, TokenFile: c.TokenFile, Token: token.Text()})
	if err != nil {
		return errors.Join(err, l.Close(), file.Close())
	}
	words := printAsync(&c.Say, &c.Warn)
	defer words.Finish(asyncwriter.Patience)
	if c.Announced {
		end, err := announced(target)
		defer end()
		if err != nil {
			c.Warn(err)
		}
	}
	words.Say(func() { c.Ready(at) })
	silence, kill := leaseParts(c.Lease)
	cfg := rendezvous.Config{Lease: silence, KillTime: kill, Workspaces: filepath.Join(dir, jobdir.Workspaces), Note: c.Say, Warn: c.Warn, Capacity: capacity, Limits: kinds.Limits, MaxNodes: kinds.Max}
	if len(all) > 0 {
		cfg.Candidate = c.candidate(own, all, token, file, cfg)
	} else {
		cfg.File = file
	}
	err = rendezvous.Coordinate(ctx, l, mtls.Server(token, mtls.Identity{}), cfg)
	return errors.Join(err, closeLog(file))
}

// findPeers returns the addresses of all coordinators of the cluster, and the name of this one,
// which then listens at its own address. Both are empty without peers.
func (c *Coordinator) findPeers(ctx context.Context) (all []string, own string, err error) {
	if len(c.Peers) == 0 {
		return nil, "", nil
	}
	port := coordinatorPort(c.ports)
	if all, err = peers.Parse(c.Peers, port); err != nil {
		return nil, "", err
	}
	self, err := pod.Await(ctx, c.Warn, func(ctx context.Context) (peers.Self, error) {
		return peers.Find(ctx, all, c.Listen, port, machine.Wanted{}.Reachable, c.Say)
	})
	c.Listen = self.Listen
	return all, self.Name, err
}

// closeLimit bounds the wait for the disk when a coordinator closes its log.
const closeLimit = 5 * time.Second

func closeLog(file *rendezvous.File) error {
	closed := make(chan error, 1)
	go func() { closed <- file.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeLimit):
		return fmt.Errorf("cannot write the end of the coordinator's log within %v: the disk hangs", closeLimit)
	}
}

func (c *Coordinator) defaults() {
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Ready == nil {
		c.Ready = func(netip.AddrPort) {}
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Warn == nil {
		c.Warn = warnStderr
	}
}

func warnStderr(err error) { fmt.Fprintf(os.Stderr, "golaunch: warning: %v\n", err) }

// announced lets commands find the coordinator until end is called. The error says why commands
// cannot find it.
func announced(at string) (end func(), err error) {
	name, err := discovery.Tell(at)
	switch {
	case err == nil:
		return func() { name.Close() }, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("another coordinator is this machine's default: commands for this one need --coordinator %s", at)
	default:
		err = fmt.Errorf("commands on this machine must be told --coordinator %s: %w", at, err)
	}
	return func() {}, err
}

// listen listens at the one address that agents use.
func (c Coordinator) listen(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		host, port = c.Listen, strconv.Itoa(coordinatorPort(c.ports))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 || strings.ContainsAny(host, "/ ") {
		return nil, usage.Errorf("listen %q: HOST:PORT, HOST or :PORT, such as 10.0.0.5:%d", c.Listen, DefaultPort)
	}
	if host == "" {
		host = address.OnDefaultRoute().String()
	} else if at, err := address.Resolve(ctx, "coordinator", host, DefaultPort); err == nil {
		if at, err = at.ForOthers(ctx, machine.Wanted{}.Reachable, c.Say); err != nil {
			return nil, err
		}
		host = at.Host
	}
	if n, _ := strconv.Atoi(port); n == 0 {
		return c.ports.Listen(ctx, host)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		n, _ := strconv.Atoi(port)
		return nil, fmt.Errorf("port %s of %s is in use%s; end it, or choose another with --listen", port, host, agent.PortHolder(n))
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("cannot listen on %s: %w; ip addr lists the addresses of this machine", net.JoinHostPort(host, port), err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", net.JoinHostPort(host, port), err)
	}
	return l, nil
}

// open opens the coordinator's log, and returns the directory of the coordinator's state.
func (c Coordinator) open(at string) (file *rendezvous.File, dir string, err error) {
	dir = c.Store
	if dir == "" {
		home, err := account.Home()
		if err != nil {
			return nil, "", fmt.Errorf("cannot find a directory for the coordinator's log: %w; give one with --state-dir", err)
		}
		dir = filepath.Join(home, ".golaunch", at)
	}
	own, other, with := dir, filepath.Join(dir, raftDir), "with"
	if len(c.Peers) > 0 {
		own, other, with = other, own, "without"
	}
	if hasLog(other) {
		return nil, "", fmt.Errorf("in %s are the jobs of a coordinator %s --peers, which this one would forget: start it as before, or remove %s, or "+
			"give another --state-dir", dir, with, filepath.Join(other, "log"))
	}
	file, err = rendezvous.OpenFile(own)
	return file, dir, err
}

// hasLog reports whether a directory has the log of a coordinator.
func hasLog(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "log"))
	return err == nil
}

// raftDir is the directory, below Store, of the log of a coordinator with peers.
const raftDir = "raft"

// candidate returns this coordinator as one of its peers, which can elect it.
func (c Coordinator) candidate(own string, peers []string, token mtls.Token, file *rendezvous.File, cfg rendezvous.Config) *rendezvous.Candidate {
	id := mtls.Identity{}
	return rendezvous.NewCandidate(rendezvous.CandidateConfig{
		Node: own, Addr: own, Peers: peers, File: file, Workspaces: cfg.Workspaces, Lease: cfg.Lease, Server: mtls.Server(token, id), Client: mtls.Client(token, id),
		Facts: map[string]string{"--peers": strings.Join(peers, ",")}, Note: c.Say, Warn: c.Warn,
	})
}

// giveBackLimit bounds how long providers may take to end all nodes.
const giveBackLimit = 15 * time.Minute

// GiveBack deletes all nodes that coordinators with this Store have asked for, and returns once
// their providers list none of these nodes. The coordinator must have ended.
func (c Coordinator) GiveBack(ctx context.Context) (err error) {
	c.defaults()
	switch {
	case c.Capacity == "" || c.Store == "":
		return usage.Errorf("to give nodes back, name the file with their kinds and the directory with the coordinator's log")
	case len(c.Peers) > 0 || hasLog(filepath.Join(c.Store, raftDir)):
		return usage.Errorf("coordinators with peers give nodes back themselves: set max: 0 for each kind, and drain the nodes")
	}
	kinds, err := capacityfile.Read(c.Capacity)
	if err != nil {
		return err
	}
	if !hasLog(c.Store) {
		return usage.Errorf("--state-dir %s has no log of a coordinator: name the directory of the coordinator that asked for the nodes (~/.golaunch/HOST:PORT, if it had no --state-dir)", c.Store)
	}
	all, err := provider.Capacity(ctx, c.Capacity, kinds, provider.Cluster{})
	if err != nil {
		return err
	}
	file, err := rendezvous.OpenFile(c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, giveBackLimit, fmt.Errorf("their providers still have them after %v", giveBackLimit))
	defer cancel()
	n, err := rendezvous.GiveBack(ctx, file, all, c.Say)
	for _, k := range all {
		if cloud, is := k.Provider.(*provider.Cloud); is && err == nil {
			err = cloud.RemoveRest(ctx)
		}
	}
	if err == nil {
		c.Say(fmt.Sprintf("nodes given back: %d; none is left", n))
	}
	return err
}
