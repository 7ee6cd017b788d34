package tcpstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// Client is a connection to a store of torch or of this package. As in torch, every key is sent
// with a "/" before it, and a call that waits delays further calls on the same client. A program
// that waits in several goroutines needs a client for each.
//
// A call lasts as long as its context and the client's timeout allow. If a call ends early while it
// waits for keys, the client cancels the wait and remains usable. The error then wraps the
// context's error. Any other failure breaks the client.
type Client struct {
	conn    net.Conn
	replies *bufio.Reader
	timeout time.Duration
	// turn is full during a call, which then owns all fields except conn. broken says why no call
	// is possible.
	turn   chan struct{}
	broken error
}

// cancelTimeout bounds the wait for the answer to a cancelled wait.
const cancelTimeout = 10 * time.Second

// Dial connects to a store and greets it with this process's ID. It retries for as long as the
// timeout. The timeout then also bounds each call (torch's default is 5 minutes).
func Dial(ctx context.Context, addr netip.AddrPort, timeout time.Duration) (*Client, error) {
	return dialAs(ctx, uint32(os.Getpid()), addr, timeout)
}

// DialUnlisted is like Dial, for a process that does not belong to the job. [Store.Status] does not
// list this process.
func DialUnlisted(ctx context.Context, addr netip.AddrPort, timeout time.Duration) (*Client, error) {
	return dialAs(ctx, protocol.Unlisted, addr, timeout)
}

func dialAs(ctx context.Context, pid uint32, addr netip.AddrPort, timeout time.Duration) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var first error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		c, err := dial(ctx, pid, addr, timeout)
		if err == nil {
			return c, nil
		}
		if first == nil || ctx.Err() == nil {
			first = err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reach the store at %v within %v: %w", addr, timeout, first)
		}
	}
}

func dial(ctx context.Context, pid uint32, addr netip.AddrPort, timeout time.Duration) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, replies: bufio.NewReaderSize(conn, 1<<10), timeout: timeout, turn: make(chan struct{}, 1)}
	hello := binary.LittleEndian.AppendUint32([]byte{protocol.OpValidate}, protocol.Magic)
	hello = binary.LittleEndian.AppendUint32(append(hello, protocol.OpPing), pid)
	err = c.call(ctx, request{bytes: hello}, func(context.Context) error {
		b, err := c.read(4)
		if err == nil && binary.LittleEndian.Uint32(b) != pid {
			err = errors.New("it is not a store: it does not echo a ping")
		}
		return err
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close disconnects the client. A call under way fails.
func (c *Client) Close() error { return c.conn.Close() }

// call sends a request, after waiting until no other call is under way. If the request has a reply,
// answer reads it.
func (c *Client) call(ctx context.Context, r request, answer func(context.Context) error) error {
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("another call on this client is running: %w", ctx.Err())
	}
	defer func() { <-c.turn }()
	switch {
	case c.broken != nil:
		return c.broken
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	defer c.bound(ctx)()
	err := c.send(r)
	if err == nil && answer != nil {
		err = answer(ctx)
	}
	if w := (*waitError)(nil); err != nil && !errors.As(err, &w) {
		c.broken = fmt.Errorf("the connection to the store at %v is broken: %w", c.conn.RemoteAddr(), err)
		c.conn.Close()
		return c.broken
	}
	return err
}

// bound makes reads fail once the context ends. Writes fail only after the client's timeout,
// because half a request would break the connection. undo ends the bound on reads.
func (c *Client) bound(ctx context.Context) (undo func()) {
	ended := make(chan struct{})
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.timeout)) // setting a deadline fails only on a closed connection
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-ended
			_ = c.conn.SetReadDeadline(time.Time{})
		}
	}
}

func (c *Client) send(r request) error {
	_, err := c.conn.Write(r.bytes)
	return err
}

// waitError is the error of a wait that left the connection usable.
type waitError struct {
	what  string
	cause error
}

func (e *waitError) Error() string { return e.what + ": " + e.cause.Error() }
func (e *waitError) Unwrap() error { return e.cause }

// released waits for the end of a wait, and cancels the wait when the context ends. If the wait
// ends before the store gets the cancellation, released succeeds.
func (c *Client) released(ctx context.Context, what string) error {
	b, err := c.replies.ReadByte()
	if err == nil && b == protocol.StopWaiting {
		return nil
	}
	if err == nil {
		return fmt.Errorf("it answered a wait with %d", b)
	}
	if ctx.Err() == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	_ = c.conn.SetDeadline(time.Now().Add(cancelTimeout))
	if err := c.send(request{bytes: []byte{protocol.OpCancelWait}}); err != nil {
		return err
	}
	b, err = c.replies.ReadByte()
	if err == nil && b == protocol.StopWaiting {
		_, err = c.replies.ReadByte()
		return err
	}
	if err != nil {
		return err
	}
	return &waitError{what, context.Cause(ctx)}
}

func (c *Client) read(n int64) ([]byte, error) {
	if n < 0 || n > math.MaxInt32 {
		return nil, fmt.Errorf("it sent a length of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.replies, b)
	return b, err
}

func (c *Client) readInt() (int64, error) {
	b, err := c.replies.Peek(8)
	if err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(b)
	_, err = c.replies.Discard(8)
	return int64(n), err
}

func (c *Client) readValue() ([]byte, error) {
	n, err := c.readInt()
	if err != nil {
		return nil, err
	}
	return c.read(n)
}

// request is a request under construction. err says why it cannot be sent.
type request struct {
	bytes []byte
	err   error
}

func ask(op byte) request { return request{bytes: []byte{op}} }

func (r request) int(n int64) request {
	r.bytes = binary.LittleEndian.AppendUint64(r.bytes, uint64(n))
	return r
}

func (r request) key(key string) request {
	if len(prefix)+len(key) > protocol.MaxKey {
		r.err = fmt.Errorf("a key of %d bytes is too long: the limit is %d", len(key), protocol.MaxKey-len(prefix))
	}
	r = r.int(int64(len(prefix) + len(key)))
	r.bytes = append(append(r.bytes, prefix...), key...)
	return r
}

func (r request) keys(keys []string) request {
	if len(keys) > protocol.MaxKeys {
		r.err = fmt.Errorf("%d keys are too many: the limit is %d", len(keys), protocol.MaxKeys)
	}
	r = r.int(int64(len(keys)))
	for _, key := range keys {
		r = r.key(key)
	}
	return r
}

func (r request) value(value []byte) request {
	if len(value) > protocol.MaxValue {
		r.err = fmt.Errorf("a value of %d bytes is too long: the limit is %d", len(value), protocol.MaxValue)
	}
	r = r.int(int64(len(value)))
	r.bytes = append(r.bytes, value...)
	return r
}
