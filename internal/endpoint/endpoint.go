// Package endpoint lets a controller on another machine reach the workers of a job on this node.
//
// A worker comes to a Unix socket that its job's user alone can open, and says who it is in its first frame, with the key of its controller. The
// controller comes over mutual TLS with that key. The two are brought together, and from then on bytes go both ways as they come: what they
// say is no business of the node's, and no more of it is held than the kernel's buffers and one of each direction have.
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
	"time"

	"golang.org/x/sys/unix"
)

const (
	// KeySize is that of a key, in hexadecimal digits.
	KeySize = 64
	// greeting bounds the time in which who comes must have said who it is, and strangers is how many may be about to.
	greeting  = 10 * time.Second
	strangers = 1024
	// most is how many workers, and how many controllers' connections, wait for each other.
	most = 1 << 16
)

// protocol is what the two ends of TLS agree on: a coordinator's port is no endpoint.
const protocol = "golaunch-endpoint/1"

// Options say whose an endpoint is.
type Options struct {
	// UID and GID are of the job's user.
	UID, GID int
	// Addr is where controllers come, to a port that is free.
	Addr netip.Addr
	// TLS is the node's side, which refuses who has no token.
	TLS *tls.Config
}

// Endpoint is open until Close.
type Endpoint struct {
	o       Options
	dir     string
	workers net.Listener
	slots   chan struct{}

	mu sync.Mutex
	// controllers is nil until somebody asks where they may come.
	controllers net.Listener
	closed      bool
	// waiting are by key: workers that no controller has taken, and controllers' connections that have no worker.
	waiting map[string]*queue
	conns   map[net.Conn]struct{}
	all     sync.WaitGroup
}

type queue struct {
	workers     []*worker
	controllers []net.Conn
}

// Open makes an endpoint for workers; [Endpoint.Listen] opens its other side.
func Open(o Options) (*Endpoint, error) {
	parent := os.TempDir()
	if len(parent) > 70 { // a socket's path has 108 bytes, unix(7)
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "golaunch-endpoint-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make a directory for the workers' endpoint: %w", err)
	}
	d := &Endpoint{
		o: o, dir: dir, slots: make(chan struct{}, strangers), waiting: map[string]*queue{}, conns: map[net.Conn]struct{}{},
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Path(), Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false) // the directory goes as a whole
		d.workers = l
		if err = d.give(); err != nil {
			d.workers.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the workers' endpoint: %w", err), os.RemoveAll(dir))
	}
	d.all.Go(func() { d.accept(d.workers, d.greetWorker) })
	return d, nil
}

// give makes socket and directory those of the job's user, who alone can enter then, beside root.
func (d *Endpoint) give() error {
	if err := os.Chmod(d.Path(), 0o600); err != nil {
		return err
	}
	if d.o.UID == os.Geteuid() {
		return nil
	}
	return errors.Join(os.Lchown(d.Path(), d.o.UID, d.o.GID), os.Lchown(d.dir, d.o.UID, d.o.GID))
}

// Path is where workers come.
func (d *Endpoint) Path() string { return filepath.Join(d.dir, "endpoint") }

// Listen opens the endpoint for controllers, the first time, and says where it is.
func (d *Endpoint) Listen(ctx context.Context) (netip.AddrPort, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return netip.AddrPort{}, errors.New("the job is over here")
	}
	if d.controllers == nil {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(d.o.Addr, 0).String())
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("open the controllers' endpoint: %w", err)
		}
		d.controllers = l
		config := forEndpoints(d.o.TLS)
		d.all.Go(func() {
			d.accept(l, func(conn net.Conn) { d.greetController(tls.Server(conn, config)) })
		})
	}
	return d.controllers.Addr().(*net.TCPAddr).AddrPort(), nil
}

func forEndpoints(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// Close ends all connections.
func (d *Endpoint) Close() error {
	d.mu.Lock()
	d.closed = true
	d.workers.Close()
	if d.controllers != nil {
		d.controllers.Close()
	}
	for conn := range d.conns {
		conn.Close()
	}
	d.mu.Unlock()
	d.all.Wait()
	return os.RemoveAll(d.dir)
}

// accept greets who comes, some at a time.
func (d *Endpoint) accept(l net.Listener, greet func(net.Conn)) {
	for {
		d.slots <- struct{}{}
		conn, err := l.Accept()
		if err == nil && !d.keep(conn) {
			err = net.ErrClosed
		}
		if err != nil {
			<-d.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptor is free
			continue
		}
		d.all.Go(func() {
			free := sync.OnceFunc(func() { <-d.slots })
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
func (d *Endpoint) keep(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		conn.Close()
		return false
	}
	d.conns[conn] = struct{}{}
	return true
}

func (d *Endpoint) drop(conn net.Conn) {
	conn.Close()
	d.mu.Lock()
	delete(d.conns, conn)
	d.mu.Unlock()
}

// mayCome says whether the process at the other end is the job's user's.
func (d *Endpoint) mayCome(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && failed == nil && int(cred.Uid) == d.o.UID
}
