// Package endpoint lets a controller on another machine reach the workers of a job on this node.
//
// A worker comes to a Unix socket that its job's user alone can open, and says who it is in its first frame, with the key of its controller. The
// controller comes over mutual TLS with that key. The two are brought together, and from then on bytes go both ways as they come: what they
// say is no business of the node's, and no more of it is held than the kernel's buffers and one of each direction have.
//
// What a controller has for several workers of a node, a blob, crosses the network once. It is a descriptor of memory that the controller's program sends on its Unix
// socket, and the worker gets a descriptor of the same content on its own, as if that were one socket; or, from who has no such socket, bytes. On the connection of each worker
// the controller names the blob and waits; the node answers that it has it, or that it is to come now, on this connection. So there is no connection whose end would be
// that of all, and none on which a blob stands that some worker is not ready for: the node asks when all that was said before has been delivered.
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
	// KeySize is that of a key, in hexadecimal digits.
	KeySize = 64
	// greeting bounds the time in which who comes must have said who it is, and strangers is how many
	// may be about to on each side.
	greeting  = 10 * time.Second
	strangers = 128
	// mostWorkers and mostControllers are how many wait for each other; of more, the one that came first is given up. A controller has one
	// connection here that waits, and each has a descriptor of an agent that needs them for ranks.
	mostWorkers     = 4096
	mostControllers = 64
)

// pause and maxPause are the shortest and the longest wait between attempts to accept who comes.
const (
	pause    = 10 * time.Millisecond
	maxPause = time.Second
)

// protocol is what the two ends of TLS agree on: a coordinator's port is no endpoint.
const protocol = "golaunch-endpoint/3"

// Options say whose an endpoint is.
type Options struct {
	// UID and GID are of the job's user.
	UID, GID int
	// Addr is where controllers come, to a port that is free, of Ports if that is a range.
	Addr  netip.Addr
	Ports ports.Range
	// TLS is the node's side, which refuses who has no token.
	TLS *tls.Config
	// Dir is the [Endpoint.Dir] of an endpoint that a killed process has left, to which workers come again; a new one when empty.
	Dir string
	// Warn is told why nobody can come for a while, such as a limit on open files.
	Warn func(error)
}

// Endpoint is open until Close.
type Endpoint struct {
	o       Options
	dir     string
	workers net.Listener

	mu sync.Mutex
	// controllers is nil until somebody asks where they may come.
	controllers net.Listener
	closed      bool
	// waiting are workers that no controller has taken, and controllers' connections that have no worker, in the order in which they came.
	waiting struct{ workers, controllers []waiter }
	conns   map[net.Conn]struct{}
	blobs   blobs
	all     sync.WaitGroup
}

// Open makes an endpoint for workers; [Endpoint.Listen] opens its other side.
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
		l.SetUnlinkOnClose(false) // the directory goes as a whole
		e.workers = l
		if err = e.give(); err != nil {
			e.workers.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the workers' endpoint: %w", err), os.RemoveAll(dir))
	}
	e.all.Go(func() { e.accept(e.workers, workers(), e.greetWorker) })
	return e, nil
}

// give makes socket and directory those of the job's user, who alone can enter then, beside root.
func (e *Endpoint) give() error {
	if err := os.Chmod(e.Path(), 0o600); err != nil {
		return err
	}
	if e.o.UID == os.Geteuid() {
		return nil
	}
	return errors.Join(os.Lchown(e.Path(), e.o.UID, e.o.GID), os.Lchown(e.dir, e.o.UID, e.o.GID))
}

// Expect says how many workers there are to be, so that what the first have got rests for those who are still to come.
func (e *Endpoint) Expect(workers int) {
	e.blobs.mu.Lock()
	defer e.blobs.mu.Unlock()
	e.blobs.expected = workers
}

// Path is where workers come.
func (e *Endpoint) Path() string { return filepath.Join(e.dir, socketName) }

// Dir is the directory of the endpoint, which has nothing else.
func (e *Endpoint) Dir() string { return e.dir }

const socketName = "endpoint"

// reuse makes the directory of an endpoint that a killed process has left as if it were new. It is taken from the job's user first, who then cannot put another
// one in its place.
func reuse(dir string) error {
	err := os.Lchown(dir, os.Geteuid(), os.Getegid())
	if errors.Is(err, os.ErrNotExist) { // another process has tidied up
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

// Listen opens the endpoint for controllers, the first time, and says where it is.
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
			e.accept(l, new(controllers).enter, func(conn net.Conn) { e.greetController(tls.Server(conn, config)) })
		})
	}
	return e.controllers.Addr().(*net.TCPAddr).AddrPort(), nil
}

func forEndpoints(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// Close ends all connections.
func (e *Endpoint) Close() error {
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

// accept greets who comes, once enter has let them in.
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
				e.o.Warn(fmt.Errorf("nobody can come to the workers' endpoint at %v for the moment: %w", l.Addr(), err))
			}
			time.Sleep(min(pause<<min(failed, 10), maxPause)) // no event tells that a descriptor is free
			continue
		}
		failed = -1
		if far, ok := conn.(*net.TCPConn); ok {
			_ = far.SetKeepAliveConfig(keepAlive) // without it, it is found later that the other end is gone
		}
		free := sync.OnceFunc(enter(conn))
		e.all.Go(func() {
			defer free()
			_ = conn.SetDeadline(time.Now().Add(greeting))
			greet(freed{conn, free})
		})
	}
}

// freed gives its place among the strangers to the next when it is known.
type freed struct {
	net.Conn
	known func()
}

// keep has Close end a connection.
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

// mayCome says whether the process at the other end is the job's user's.
func (e *Endpoint) mayCome(conn *net.UnixConn) bool {
	peer, err := safefile.Peer(conn)
	return err == nil && int(peer.Uid) == e.o.UID
}
