package fabric

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/ports"
)

const (
	// streams is how many streams, with one core each, saturate a link of 100 Gbit/s.
	streams = 4
	// window is the time for which bytes are counted in each direction.
	window = 150 * time.Millisecond
	// trips is the number of round trips whose median counts; after tripTime, fewer suffice.
	trips    = 200
	tripTime = 200 * time.Millisecond
	// maxConns bounds the connections of a test, including connections of strangers.
	maxConns = 64
	// chunk is how much is written at once, in bytes.
	chunk = 256 << 10
)

// The purpose of a connection, sent after the token.
const (
	forTrips = 't'
	forUp    = 'u' // the dialer writes
	forDown  = 'd'
	// forProbe only shows that the port was reached.
	forProbe = 'p'
)

// meeting is where a node listens for a test. The token keeps strangers out.
type meeting struct {
	Addr  netip.AddrPort
	Token []byte
	// ID is the ID of NCCL's communicator. A test over NCCL needs no address and no token.
	ID string
}

// stream is this node's part of a test over TCP.
func (n *node) stream(ctx context.Context, o order) (out outcome) {
	err := func() (err error) {
		if !o.First {
			m, err := n.meet(ctx, o, meetingKey(o.Test))
			if err != nil {
				return err
			}
			out.Figures, err = n.dial(ctx, o.Peer, m, streams)
			return err
		}
		s, err := n.listen(ctx, n.ports)
		if err != nil {
			return err
		}
		if o.Peer == "" {
			out.Figures, err = n.alone(ctx, s)
			return err
		}
		if err := put(ctx, n.store, meetingKey(o.Test), s.meeting()); err != nil {
			return errors.Join(err, s.Close())
		}
		out.Bandwidth, err = s.serve(ctx)
		return err
	}()
	if err != nil {
		_, out.Blocked = errors.AsType[*blockedError](err)
		out.Err = err.Error()
	}
	return out
}

// alone makes round trips to this node's own address. It measures no bandwidth, since no byte would
// cross a network.
func (n *node) alone(ctx context.Context, s *server) (f Figures, err error) {
	var serving errgroup.Group
	serving.Go(func() error {
		_, err := s.serve(ctx)
		return err
	})
	f, err = n.dial(ctx, n.info.NodeName, s.meeting(), 0)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	return f, cmp.Or(err, serving.Wait())
}

// server is the node of a pair that listens.
type server struct {
	net.Listener
	token []byte
	mu    sync.Mutex
	// rate is the sum over streams, in bytes per second.
	rate float64
}

func (n *node) listen(ctx context.Context, within ports.Range) (*server, error) {
	l, err := within.Listen(ctx, n.addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen for the other node: %w", err)
	}
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails
	return &server{Listener: l, token: token}, nil
}

func (s *server) meeting() meeting {
	return meeting{Addr: s.Addr().(*net.TCPAddr).AddrPort(), Token: s.token}
}

// serve takes connections until the connection for round trips has ended, and returns the bandwidth
// to this node in GB/s.
func (s *server) serve(ctx context.Context) (bandwidth float64, err error) {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	var conns errgroup.Group
	met := false
	for range maxConns {
		conn, err := s.Accept()
		if err != nil {
			break // closed at the end of the round trips or of the test
		}
		met = true
		conns.Go(func() error {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			return s.handle(conn)
		})
	}
	s.Close()
	err = conns.Wait()
	if ctx.Err() != nil && !met {
		return 0, fmt.Errorf("no node has reached %v: %w", s.Addr(), context.Cause(ctx))
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("streams to %v: %w", s.Addr(), context.Cause(ctx))
	}
	return s.rate / 1e9, err
}

func (s *server) handle(conn net.Conn) error {
	head := make([]byte, len(s.token)+1)
	if _, err := io.ReadFull(conn, head); err != nil || !bytes.Equal(head[:len(s.token)], s.token) {
		return nil // the connection has no token, so it is from a stranger
	}
	switch head[len(s.token)] {
	case forTrips:
		defer s.Close()
		_, err := io.Copy(conn, conn)
		return err
	case forDown:
		flood(conn)
		return nil
	}
	rate, err := count(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate += rate
	return err
}

// dial makes round trips and streams to a server, in both directions, and returns the median trip
// and the bandwidth to this node.
func (n *node) dial(ctx context.Context, peer string, m meeting, streams int) (f Figures, err error) {
	control, err := n.connect(ctx, peer, m, forTrips)
	if err != nil {
		return f, err
	}
	defer control.Close()
	defer context.AfterFunc(ctx, func() { control.Close() })()
	if f.Latency, err = median(control); err != nil {
		return f, fmt.Errorf("round trips to %v: %w", m.Addr, cause(ctx, err))
	}
	for _, direction := range []byte{forUp, forDown} {
		if f.Bandwidth, err = n.parallel(ctx, peer, m, direction, streams); err != nil {
			return f, fmt.Errorf("streams %s %v: %w", map[byte]string{forUp: "to", forDown: "from"}[direction], m.Addr, cause(ctx, err))
		}
	}
	return f, nil
}

// cause returns the reason why ctx ended, if it did, rather than the error that followed.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// blockedError is the error of a node that does not reach a listening port of another node.
type blockedError struct {
	from, to string
	addr     netip.Addr
	at       netip.AddrPort
	err      error
	// why is a possible cause of err; empty if none is known.
	why string
}

func (e *blockedError) Error() string {
	text := fmt.Sprintf("%s (%v) cannot reach %s at %v, port %d: %v", e.from, e.addr, e.to, e.at.Addr(), e.at.Port(), e.err)
	if e.why == "" {
		return text
	}
	return text + " (" + e.why + ")"
}

func (n *node) connect(ctx context.Context, peer string, m meeting, purpose byte) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: n.addr.AsSlice(), Zone: n.addr.Zone()}}
	conn, err := d.DialContext(ctx, "tcp", m.Addr.String())
	if err != nil && errors.Is(context.Cause(ctx), errEcho) {
		return nil, errEcho
	}
	if err != nil {
		b := &blockedError{from: n.info.NodeName, addr: n.addr, to: peer, at: m.Addr, err: err, why: ports.Why(err)}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			b.err = errno // the text of err would repeat both addresses
		} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			<-ctx.Done() // ctx may end a moment after the connection's own deadline
			b.err = context.Cause(ctx)
		}
		return nil, b
	}
	if _, err := conn.Write(append(slices.Clone(m.Token), purpose)); err != nil {
		return nil, errors.Join(fmt.Errorf("greet %v: %w", m.Addr, cause(ctx, err)), conn.Close())
	}
	return conn, nil
}

// median returns the median time of round trips of 8 bytes.
func median(conn net.Conn) (time.Duration, error) {
	var took []time.Duration
	buf := make([]byte, 8)
	for begin := time.Now(); len(took) < trips && time.Since(begin) < tripTime; {
		sent := time.Now()
		if _, err := conn.Write(buf); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return 0, err
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// parallel runs streams in one direction, and returns the bandwidth in GB/s if the direction is to
// this node.
func (n *node) parallel(ctx context.Context, peer string, m meeting, direction byte, streams int) (bandwidth float64, err error) {
	rates := make([]float64, streams)
	var all errgroup.Group
	for i := range streams {
		all.Go(func() error {
			conn, err := n.connect(ctx, peer, m, direction)
			if err != nil {
				return err
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if direction == forDown {
				rates[i], err = count(conn)
				return err
			}
			flood(conn)
			return ctx.Err()
		})
	}
	err = all.Wait()
	for _, rate := range rates {
		bandwidth += rate / 1e9
	}
	return bandwidth, err
}

// flood writes until the reader closes the connection, or the test ends it.
func flood(conn net.Conn) {
	buf := make([]byte, chunk)
	for err := error(nil); err == nil; {
		_, err = conn.Write(buf)
	}
}

// count reads for a window from the first byte on, and returns the rate in bytes per second.
func count(conn net.Conn) (rate float64, err error) {
	buf := make([]byte, chunk)
	if _, err := conn.Read(buf); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := conn.SetReadDeadline(begin.Add(window)); err != nil {
		return 0, err
	}
	var read int64
	for err == nil {
		var n int
		n, err = conn.Read(buf)
		late := time.Since(begin) > 2*window // this process did not run meanwhile, so the result says nothing about the network
		if read += int64(n); read == 0 && late && errors.Is(err, os.ErrDeadlineExceeded) {
			begin = time.Now()
			err = conn.SetReadDeadline(begin.Add(window))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	return float64(read) / time.Since(begin).Seconds(), nil
}
