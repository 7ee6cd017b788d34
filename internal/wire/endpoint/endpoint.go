// Package endpoint lets a controller on another machine reach the workers of a job on this node.
//
// A worker connects to a Unix socket that only its job's user can open, and identifies itself in
// its first frame with the key of its controller. The controller connects over mutual TLS with the
// same key. The endpoint joins the two connections and copies bytes both ways. It does not
// interpret the bytes. Only the kernel and one buffer for each direction hold them.
//
// A blob is content that a controller has for several workers of a node. A blob crosses the network
// once. The controller's program sends a descriptor of memory on its Unix socket, and each worker
// gets a descriptor of the same content on its own socket, as if program and worker shared a
// socket. A worker that takes no descriptors gets the blob as bytes. On the connection of each
// worker the controller names the blob and waits. The node answers that it has the blob, or that
// the controller must send the blob now, on this connection. So the blob may arrive on the
// connection of any worker, and no worker waits for another: the node asks for the blob once all
// earlier messages to this worker have been delivered.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// KeySize is the length of a key, in hexadecimal digits.
	KeySize = 64
	// helloTimeout bounds the time in which a peer must identify itself. maxUnknown bounds the
	// unidentified peers on each side.
	helloTimeout = 10 * time.Second
	maxUnknown   = 128
	// maxWorkers and maxControllers bound the connections that wait for each other. Beyond these,
	// the oldest is dropped. Each controller has one waiting connection here. A connection takes
	// one of the agent's descriptors, which ranks need too.
	maxWorkers     = 4096
	maxControllers = 64
)

// pause and maxPause are the shortest and the longest wait between failed attempts to accept.
const (
	pause    = 10 * time.Millisecond
	maxPause = time.Second
)

// protocol is the ALPN protocol. It tells an endpoint from the port of a coordinator.
const protocol = "golaunch-endpoint/3"

// Options configure an endpoint.
type Options struct {
	// UID and GID are the ids of the job's user.
	UID, GID int
	// Addr is where controllers connect, at a free port. If Ports is a range, the port is in the
	// range.
	Addr  netip.Addr
	Ports ports.Range
	// TLS is the node's side of TLS. It refuses peers without the token.
	TLS *tls.Config
	// Dir is the [Endpoint.Dir] of an endpoint whose process was killed, so that its workers
	// reconnect; a new one when empty.
	Dir string
	// Warn gets the reason why connections cannot be accepted for a while, such as a limit on open
	// files.
	Warn func(error)
}

// Endpoint is open until Close.
type Endpoint struct {
	o       Options
	dir     string
	workers net.Listener

	mu sync.Mutex
	// controllers is nil before the first Listen.
	controllers net.Listener
	closed      bool
	// waiting are workers without a controller, and connections of controllers without a worker,
	// the oldest first.
	waiting struct{ workers, controllers []waiter }
	conns   map[net.Conn]struct{}
	blobs   blobs
	all     sync.WaitGroup
}

// Open opens an endpoint for workers. [Endpoint.Listen] opens it for controllers.
func Open(o Options) (*Endpoint, error) {
	dir, err := o.Dir, error(nil)
	if dir == "" {
		dir, err = SocketDir("golaunch-endpoint-")
	} else {
		err = reuse(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the workers' endpoint: %w", err)
	}
	e := &Endpoint{
		o: o, dir: dir, conns: map[net.Conn]struct{}{},
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: e.Path(), Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false) // Close removes the whole directory
		e.workers = l
		if err = e.chown(); err != nil {
			e.workers.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the workers' endpoint: %w", err), os.RemoveAll(dir))
	}
	e.all.Go(func() { e.accept(e.workers, workers(), e.helloWorker) })
	return e, nil
}

// chown gives socket and directory to the job's user. Only that user and root can then enter.
func (e *Endpoint) chown() error {
	if err := os.Chmod(e.Path(), 0o600); err != nil {
		return err
	}
	if e.o.UID == os.Geteuid() {
		return nil
	}
	return errors.Join(os.Lchown(e.Path(), e.o.UID, e.o.GID), os.Lchown(e.dir, e.o.UID, e.o.GID))
}

// For returns the path where a number of workers connect; empty without an endpoint. Blobs that the
// first of these workers have received are kept for the others.
func (e *Endpoint) For(workers int) string {
	if e == nil {
		return ""
	}
	e.blobs.mu.Lock()
	defer e.blobs.mu.Unlock()
	e.blobs.expected = workers
	return e.Path()
}

// Path is where workers connect.
func (e *Endpoint) Path() string { return filepath.Join(e.dir, socketName) }

// Dir is the directory of the endpoint, which contains nothing else.
func (e *Endpoint) Dir() string { return e.dir }

const socketName = "endpoint"

// reuse prepares the directory of an endpoint whose process was killed. It first makes the
// directory its own, so that the job's user cannot replace it.
func reuse(dir string) error {
	err := os.Lchown(dir, os.Geteuid(), os.Getegid())
	if errors.Is(err, os.ErrNotExist) { // another process has removed it
		return os.Mkdir(dir, 0o700)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return err
	}
	if at, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(at.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not what it was", dir)
	}
	if err := os.Remove(filepath.Join(dir, socketName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Listen opens the endpoint for controllers at the first call, and returns its address.
func (e *Endpoint) Listen(ctx context.Context) (netip.AddrPort, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return netip.AddrPort{}, errors.New("the job is over here")
	}
	if e.controllers == nil {
		l, err := e.o.Ports.Listen(ctx, e.o.Addr.String())
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("open the controllers' endpoint: %w", err)
		}
		e.controllers = l
		config := forEndpoints(e.o.TLS)
		e.all.Go(func() {
			e.accept(l, new(controllers).enter, func(conn net.Conn) { e.helloController(tls.Server(conn, config)) })
		})
	}
	return e.controllers.Addr().(*net.TCPAddr).AddrPort(), nil
}

func forEndpoints(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// Close ends all connections. It does nothing without an endpoint.
func (e *Endpoint) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	e.closed = true
	e.workers.Close()
	if e.controllers != nil {
		e.controllers.Close()
	}
	for conn := range e.conns {
		conn.Close()
	}
	e.mu.Unlock()
	e.all.Wait()
	e.blobs.clear()
	return os.RemoveAll(e.dir)
}

// accept accepts connections. enter makes room for each unidentified connection.
func (e *Endpoint) accept(l net.Listener, enter func(net.Conn) (known func()), greet func(net.Conn)) {
	for failed := 0; ; failed++ {
		conn, err := l.Accept()
		if err == nil && !e.keep(conn) {
			err = net.ErrClosed
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if failed == 0 {
				e.o.Warn(fmt.Errorf("cannot accept connections at the workers' endpoint %v for the moment: %w", l.Addr(), err))
			}
			time.Sleep(min(pause<<min(failed, 10), maxPause)) // no event says that a descriptor is free
			continue
		}
		failed = -1
		if far, ok := conn.(*net.TCPConn); ok {
			_ = far.SetKeepAliveConfig(keepAlive) // otherwise a dead peer is noticed later
		}
		free := sync.OnceFunc(enter(conn))
		e.all.Go(func() {
			defer free()
			_ = conn.SetDeadline(time.Now().Add(helloTimeout))
			greet(unknownConn{conn, free})
		})
	}
}

// unknownConn is a connection whose peer has not identified itself yet. known frees its place for
// another connection.
type unknownConn struct {
	net.Conn
	known func()
}

// keep registers a connection that Close must end.
func (e *Endpoint) keep(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		conn.Close()
		return false
	}
	e.conns[conn] = struct{}{}
	return true
}

func (e *Endpoint) drop(conn net.Conn) {
	conn.Close()
	e.mu.Lock()
	delete(e.conns, conn)
	e.mu.Unlock()
}

// isJobUser reports whether the process at the other end belongs to the job's user.
func (e *Endpoint) isJobUser(conn *net.UnixConn) bool {
	peer, err := safefile.Peer(conn)
	return err == nil && int(peer.Uid) == e.o.UID
}
