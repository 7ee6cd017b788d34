package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// obey carries out an order of the agent. It runs slow orders in the background.
func (k *keeper) obey(m message, fds []int) {
	kept := false
	defer func() {
		if !kept {
			frame.Close(fds)
		}
	}()
	switch m.Do {
	case doJoined:
		k.membership = m.Data
		k.release(func(c keptConn) bool { return c.former })
	case doPut:
		k.jobs[m.Job] = m.Data
	case doFile:
		frame.Close(k.files[m.Job])
		k.files[m.Job], kept = fds, true
	case doDrop:
		delete(k.jobs, m.Job)
		frame.Close(k.files[m.Job])
		delete(k.files, m.Job)
	case doHold:
		if kept = len(fds) == 1; kept {
			k.conns = append(k.conns, keptConn{id: m.ID, file: os.NewFile(uintptr(fds[0]), "connection")})
			k.hold()
		}
	case doRelease:
		k.release(func(c keptConn) bool { return c.id == m.ID && !c.former })
	case doRenew:
		k.lease = m.At
		k.sup.Renew(max(1, m.At-procfs.BootTime()))
		k.tell(m)
	case doServer:
		if err := k.addServer(m, fds); err != nil {
			k.warn(err)
		}
	case doUnserve:
		k.unserve(m.Server)
	case doStore, doProxy:
		k.answer(m, k.serveStore(m, fds), message{})
	case doAdmit, doBound, doStatus, doUnstore:
		k.aboutStore(m)
	case doScope:
		k.scope(m)
	case doEnd:
		k.over = true
	case doStart, doSignal, doStop, doLinger, doRest, doKill, doClose, doForget:
		kept = k.aboutScope(m, fds)
	default:
		k.answer(m, fmt.Errorf("this keeper does not know the order %q", m.Do), message{})
	}
}

// answer answers an order with a reply.
func (k *keeper) answer(m message, err error, reply message) {
	if m.from != k.link {
		return
	}
	reply.Do, reply.Seq, reply.ID = m.Do, m.Seq, m.ID
	if err != nil {
		reply.Error = err.Error()
	}
	k.tell(reply)
}

// release closes the keeper's end of connections.
func (k *keeper) release(which func(keptConn) bool) {
	var ended []keptConn
	k.conns = slices.DeleteFunc(k.conns, func(c keptConn) bool {
		if which(c) {
			ended = append(ended, c)
			return true
		}
		return false
	})
	k.hold()
	for _, c := range ended {
		_ = c.file.Close()
	}
}

func (k *keeper) scope(m message) {
	since := procfs.NewEpoch()
	sc, err := k.sup.Scope(m.Name)
	if err == nil {
		k.made++
		m.ID = k.made
		k.scopes[m.ID] = &keptScope{Scope: sc, name: m.Name, data: m.Data, since: since}
	}
	k.answer(m, err, message{Since: &since})
}

// aboutScope carries out an order about a scope, and reports whether it has taken the files.
func (k *keeper) aboutScope(m message, fds []int) (kept bool) {
	sc := k.scopes[m.ID]
	if sc == nil {
		k.answer(m, nil, message{}) // the scope was closed and forgotten
		return false
	}
	slow := func(f func() error) {
		go func() {
			err := f()
			k.post(func() { k.answer(m, err, message{}) })
		}()
	}
	switch m.Do {
	case doStart:
		if len(fds) < 3 || m.Command == nil {
			k.answer(m, errors.New("start without a command or its files"), message{})
			return false
		}
		server := k.servers[m.Server]
		k.starts.Go(func() { k.start(sc, m, server, fds) })
		return true
	case doSignal:
		go sc.Signal(syscall.Signal(m.Signal)) // Signal waits for processes that are being started
	case doStop:
		sc.stopped = true
		slow(func() error { return sc.Stop(cmp.Or(syscall.Signal(m.Signal), unix.SIGTERM), m.Heard, m.At) })
	case doLinger:
		go func() {
			names, err := sc.Linger(m.At)
			k.post(func() { k.answer(m, err, message{Names: names[:min(len(names), maxNames)]}) })
		}()
	case doRest:
		slow(func() error { return sc.Rest(m.At) })
	case doKill:
		sc.stopped = true
		slow(sc.Kill)
	case doClose:
		slow(sc.Close)
	case doForget:
		delete(k.scopes, m.ID)
		for _, r := range sc.ranks {
			frame.Close(r.files)
		}
	}
	return false
}

// start starts a process with the first three files, from a fork server if there is one. It keeps
// the other files, and reports the exit of the process.
func (k *keeper) start(sc *keptScope, m message, server *forkserver.Server, fds []int) {
	var std [3]*os.File
	for i := range std {
		std[i] = os.NewFile(uintptr(fds[i]), "standard stream")
	}
	c := m.Command.command(std[0], std[1], std[2])
	switch {
	case server != nil:
		c.Forker, c.ForkOnly = server, m.ForkOnly
	case m.Server != 0:
		c.Forker, c.ForkOnly = noServer{}, m.ForkOnly
	}
	p, err := sc.Start(c)
	for _, f := range std {
		_ = f.Close()
	}
	if err != nil {
		frame.Close(fds[3:])
		var reply message
		if start, ok := errors.AsType[*proc.StartError](err); ok {
			reply.Exit = &start.Exit
		}
		k.post(func() { k.answer(m, err, reply) })
		return
	}
	k.post(func() {
		sc.ranks = append(sc.ranks, &keptRank{process: p, data: m.Data, files: fds[3:]})
		k.answer(m, nil, forked(p, server))
		go func() {
			<-p.Done()
			k.post(func() { k.tell(exited(m.ID, p)) })
		}()
	})
}

// forked says how a process was started.
func forked(p *proc.Process, server *forkserver.Server) message {
	reply := message{PID: p.Pid()}
	var unforked error
	if reply.Forked, unforked = p.Forked(); unforked != nil {
		reply.Unforked, reply.Broken = unforked.Error(), server == nil || server.Err() != nil
	}
	return reply
}

// maxNames bounds the names of leftover processes in an answer. The names are for people.
const maxNames = 64

// changedEvery is the least time between two reports to an agent that a store has changed.
const changedEvery = time.Second

// single returns a copy of the descriptor of a message, which must have exactly one.
func single(fds []int, what string) (*os.File, error) {
	if len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors instead of %s", len(fds), what)
	}
	fd, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), what), nil
}

// serveStore serves a store at the agent's listener.
func (k *keeper) serveStore(m message, fds []int) error {
	if k.stores[m.Job] != nil {
		return fmt.Errorf("job %s has a store", m.Job)
	}
	file, err := single(fds, "the listener of a store")
	if err != nil {
		return err
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return err
	}
	kept := &keptStore{data: m.Data}
	kept.peers.Store(tcpstore.NewPeers(m.Peers, m.Own))
	kept.Store, err = tcpstore.Serve(l, tcpstore.Options{
		Root:       m.Root,
		Allow:      func(from netip.Addr) bool { return kept.peers.Load().Has(from) },
		MaxClients: func() int { return int(kept.most.Load()) },
		Warn: func(err error) {
			if !errors.Is(err, tcpstore.ErrVanished) { // the exit of the rank is reported instead
				go k.post(func() { k.warn(fmt.Errorf("store of job %s: %w", m.Job, err)) })
			}
		},
	})
	if err != nil {
		return err
	}
	k.stores[m.Job] = kept
	go func() {
		for range kept.Changes() {
			k.post(func() { k.tell(message{Do: doChanged, Job: m.Job}) })
			<-time.After(changedEvery)
		}
		k.post(func() {
			if kept.ended = true; k.stores[m.Job] == kept {
				k.tell(message{Do: doEnded, Job: m.Job})
			}
		})
	}()
	return nil
}

func (k *keeper) aboutStore(m message) {
	s := k.stores[m.Job]
	if s == nil {
		if m.Do != doAdmit && m.Do != doBound {
			k.answer(m, fmt.Errorf("%s: job %s has no store", m.Do, m.Job), message{})
		}
		return
	}
	switch m.Do {
	case doAdmit:
		if s.coming = append(s.coming, m.Peers...); !m.More {
			s.peers.Store(tcpstore.NewPeers(s.coming, m.Own))
			s.coming = nil
		}
	case doBound:
		s.most.Store(int64(m.Most))
	case doStatus:
		k.answer(m, nil, message{Clients: shown(s.Status().Clients)})
	case doUnstore:
		delete(k.stores, m.Job)
		go s.Close()
		k.answer(m, nil, message{})
	}
}

// shown keeps only the first key that each client waits for.
func shown(clients []tcpstore.ClientStatus) []tcpstore.ClientStatus {
	for i, c := range clients {
		if len(c.Waiting) > 0 {
			clients[i].Waiting = []string{c.Waiting[0][:min(len(c.Waiting[0]), maxKey)]}
		}
	}
	return clients
}
