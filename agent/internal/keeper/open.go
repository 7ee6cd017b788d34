package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/spawn"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/procfs"
)

const (
	// The names in the directory begin with a dot, because no job's name may begin with a dot.
	socketName = ".keeper"
	logName    = ".keeper.log"
)

// Open connects to the keeper of a directory, which must be on a local file system. If there is
// none, Open starts one. Warn is called with the keeper's warnings. Open fails with [ErrBusy] while
// another agent has the keeper.
func Open(dir string, warn func(error)) (*Keeper, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep ranks: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("keep ranks in %s: %w", dir, err)
	}
	conn, err := reach(lock)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep ranks in %s: %w", dir, err), lock.Close())
	}
	k := &Keeper{
		Left: Left{Jobs: map[string][]byte{}, Files: map[string]*os.File{}, Stores: map[string]*Store{}},
		link: &link{conn: conn}, lock: lock, warn: warn, gone: make(chan struct{}),
		asked: map[uint64]chan message{}, scopes: map[int]*Scope{}, stores: map[string]*Store{},
	}
	if err := k.arrive(); err != nil {
		return nil, errors.Join(fmt.Errorf("keep ranks in %s: %w", dir, err), k.Leave())
	}
	k.limit = time.AfterFunc(arriveLimit, k.giveUp)
	k.limit.Stop()
	go k.read()
	return k, nil
}

// lockDir locks a directory for as long as this process lives.
func lockDir(dir string) (*os.File, error) {
	if err := safefile.Path(dir); err != nil {
		return nil, err
	}
	root, err := safefile.Open(dir)
	if err != nil {
		return nil, err
	}
	var f *os.File
	if err = safefile.Dir(root); err == nil {
		f, err = root.Open(".")
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, fmt.Errorf("%w; choose another --log-dir", err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// reach connects to a running keeper, or else starts one.
func reach(dir *os.File) (*net.UnixConn, error) {
	// A path below /proc/self/fd always fits into a socket's name (108 bytes, unix(7)).
	addr := &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName), Net: "unix"}
	conn, err := net.DialUnix("unix", nil, addr)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		if err := start(dir.Name(), addr); err != nil {
			return nil, fmt.Errorf("start a keeper: %w", err)
		}
		conn, err = net.DialUnix("unix", nil, addr)
	}
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// start starts a keeper on a listening socket.
func start(dir string, addr *net.UnixAddr) error {
	if err := os.Remove(addr.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }() // the keeper has a duplicate of the listener
	if err := os.Chmod(addr.Name, 0o600); err != nil {
		return err
	}
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	log, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := spawn.Command(context.Background(), keeperName, socket)
	if err != nil {
		return err
	}
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = "/", log, &unix.SysProcAttr{Setsid: true}
	if err = cmd.Start(); err == nil {
		go func() { _ = cmd.Wait() }() // the keeper's log says why it ended
	}
	return err
}

// arriveLimit bounds the wait for a keeper to list what it keeps. The keeper may first wait for
// processes that are being started.
const arriveLimit = time.Minute

// arrive receives what an earlier agent has left at the keeper.
func (k *Keeper) arrive() error {
	if err := k.link.conn.SetReadDeadline(time.Now().Add(arriveLimit)); err != nil {
		return err
	}
	for {
		m, fds, err := k.link.receive()
		if err != nil {
			return err
		}
		switch m.Do {
		case doJoined:
			if m.ID != protocol {
				return fmt.Errorf("its keeper belongs to another version of golaunch (protocol %d, this one has %d): its ranks end in %v, unless that version is "+
					"started again by then; drain a node (golaunch agent --drain) before such an upgrade", m.ID, protocol,
					max(0, m.At-procfs.BootTime()).Round(time.Second))
			}
			k.Left.Membership, k.Left.Lease = m.Data, m.At
			k.process = keeperOf(m.PID)
		case doProof:
			copy(k.Proof[:], m.Data)
		case doPut:
			k.Left.Jobs[m.Job] = m.Data
		case doFile:
			if len(fds) == 1 {
				k.Left.Files[m.Job] = os.NewFile(uintptr(fds[0]), m.Job)
			}
		case doStore:
			k.Left.Stores[m.Job] = k.store(m.Job, m.Store, m.Data)
		case doScope:
			sc := k.scope(m, m.Data)
			sc.Stopped = m.Stopped
			k.Left.Scopes = append(k.Left.Scopes, sc)
		case doStart:
			sc := k.scopes[m.ID]
			sc.Ranks = append(sc.Ranks, Rank{Data: m.Data, Process: sc.process(m), Files: fds})
		case doReady:
			return k.link.conn.SetReadDeadline(time.Time{})
		default:
			k.hear(m)
		}
	}
}

// keeperOf returns a handle for the pid that the keeper has sent. It is not pinned if the process is
// not a keeper.
func keeperOf(pid int) procfs.Handle {
	h := procfs.Open(pid)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(name) != keeperName+"\n" {
		h.Close()
		return procfs.Handle{}
	}
	return h
}
