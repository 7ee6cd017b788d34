package endpoint_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// network is the network between a controller and a node. It counts the bytes to the node, and can
// hold them back.
type network struct {
	addr   string
	passed atomic.Int64
	mu     sync.Mutex
	links  []*wire
}

// wire is one of the connections of a network.
type wire struct {
	here, there net.Conn
	passed      atomic.Int64
	// limit is the number of bytes after which the wire stops. stopped is closed when it has
	// stopped.
	limit   atomic.Int64
	stopped chan struct{}
}

func (w *wire) cut() {
	w.here.Close()
	w.there.Close()
}

func connect(t *testing.T, addr string) *network {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		n.mu.Lock()
		for _, w := range n.links {
			w.cut()
		}
		n.mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			w := &wire{here: here, there: there, stopped: make(chan struct{})}
			w.limit.Store(1 << 62)
			n.mu.Lock()
			n.links = append(n.links, w)
			n.mu.Unlock()
			all.Go(func() {
				defer w.cut()
				io.Copy(here, there)
			})
			all.Go(func() {
				defer w.cut()
				buf := make([]byte, 64<<10)
				for {
					k, err := here.Read(buf)
					if w.passed.Load()+int64(k) > w.limit.Load() {
						close(w.stopped)
						here.Read(nil)
						io.Copy(io.Discard, here)
						return
					}
					if _, bad := there.Write(buf[:k]); err != nil || bad != nil {
						return
					}
					w.passed.Add(int64(k))
					n.passed.Add(int64(k))
				}
			})
		}
	})
	return n
}

// last is the connection that was made last.
func (n *network) last() *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[len(n.links)-1]
}

// pair is a program's connection for a worker, and that worker.
type pair struct {
	program, worker *net.UnixConn
	wire            *wire
	// over is closed when Forward has returned err.
	over chan struct{}
	err  error
	fds  []int
}

// bring connects a worker and makes a controller take it.
func bring(t *testing.T, d *endpoint.Endpoint, n *network, token mtls.Token, key string) *pair {
	t.Helper()
	p, start := meet(t, d, n, token, key)
	start()
	if err := p.say([]byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
	p.hears(t, []byte("hello"), nil) // so the node has begun to serve it
	return p
}

// meet does what bring does, except that no byte passes until start is called.
func meet(t *testing.T, d *endpoint.Endpoint, n *network, token mtls.Token, key string) (p *pair, start func()) {
	t.Helper()
	w := come(t, d, frame(key)).(*net.UnixConn)
	stream, _, taken, err := endpoint.Dial(t.Context(), n.addr, mtls.Client(token, mtls.Identity{}), key)
	if err != nil || taken() != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p = &pair{program: unixConn(t, fds[0]), worker: w, wire: n.last(), over: make(chan struct{})}
	helper := unixConn(t, fds[1])
	t.Cleanup(func() {
		p.program.Close()
		<-p.over
	})
	return p, func() {
		go func() {
			defer close(p.over)
			p.err = endpoint.Forward(helper, stream)
		}()
	}
}

func unixConn(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn.(*net.UnixConn)
}

// memory returns memory that a program sends.
func memory(t *testing.T, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// say sends a message with a text, together with memory.
func (p *pair) say(text []byte, beside *os.File) error {
	head := binary.LittleEndian.AppendUint32([]byte{0}, uint32(len(text)))
	var rights []byte
	if beside != nil {
		head[0], rights = 1, unix.UnixRights(int(beside.Fd()))
	}
	n, _, err := p.program.WriteMsgUnix(append(head, text...), rights, nil)
	if err == nil && n < len(head)+len(text) {
		_, err = p.program.Write(append(head, text...)[n:])
	}
	return err
}

// Read takes descriptors too.
func (p *pair) Read(b []byte) (int, error) {
	beside := make([]byte, unix.CmsgSpace(4*4))
	n, more, _, _, err := p.worker.ReadMsgUnix(b, beside)
	messages, _ := unix.ParseSocketControlMessage(beside[:more])
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		p.fds = append(p.fds, fds...)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// hear returns the next message, with the content of its memory.
func (p *pair) hear() (text, beside []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return nil, nil, err
	}
	text = make([]byte, binary.LittleEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(p, text); err != nil || head[0] == 0 {
		return text, nil, err
	}
	if len(p.fds) == 0 {
		return nil, nil, errors.New("a message without its memory")
	}
	f := os.NewFile(uintptr(p.fds[0]), "blob")
	defer f.Close()
	p.fds = p.fds[1:]
	if _, err := f.WriteAt([]byte("mine"), 0); !errors.Is(err, unix.EPERM) {
		return nil, nil, fmt.Errorf("a worker may write to what others have: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	beside = make([]byte, info.Size())
	_, err = f.ReadAt(beside, 0)
	return text, beside, err
}

// hears checks the next message.
func (p *pair) hears(t *testing.T, text, beside []byte) {
	t.Helper()
	got, with, err := p.hear()
	if err != nil || !bytes.Equal(got, text) || !bytes.Equal(with, beside) {
		t.Fatalf("got %.20q with %d bytes, %v; want %.20q with %d", got, len(with), err, text, len(beside))
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// unread is the size of the memory in messages that a worker has not read. A peeked descriptor is a
// duplicate, and may be seen again.
func (p *pair) unread(t *testing.T) (total int64) {
	t.Helper()
	raw, err := p.worker.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fdOf(t, raw), unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for {
		beside := make([]byte, unix.CmsgSpace(4*4))
		n, more, _, _, err := unix.Recvmsg(fdOf(t, raw), make([]byte, 1), beside, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 {
			break
		}
		messages, _ := unix.ParseSocketControlMessage(beside[:more])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				var at unix.Stat_t
				if err := unix.Fstat(fd, &at); err != nil {
					t.Fatal(err)
				}
				if !seen[at.Ino] {
					total += at.Size
				}
				seen[at.Ino] = true
				unix.Close(fd)
			}
		}
	}
	if err := unix.SetsockoptInt(fdOf(t, raw), unix.SOL_SOCKET, unix.SO_PEEK_OFF, -1); err != nil {
		t.Fatal(err)
	}
	return total
}

func fdOf(t *testing.T, raw interface{ Control(func(uintptr)) error }) (fd int) {
	t.Helper()
	if err := raw.Control(func(at uintptr) { fd = int(at) }); err != nil {
		t.Fatal(err)
	}
	return fd
}
