package session

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
)

// A client of several coordinators asks any of them. A coordinator that does not lead only names
// the coordinators that may lead, and the client asks these.

// secure connects to the coordinator that is asked next, or to another one if the first does not
// answer at once.
func (c *Client) secure(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	addrs := slices.Clone(c.addrs)
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		addr string
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome, len(addrs))
	var errs []any
	for next, running := 0, 0; ; {
		if next < len(addrs) {
			addr := addrs[next]
			next, running = next+1, running+1
			go func() {
				conn, err := c.secureAt(ctx, addr)
				outcomes <- outcome{addr, conn, err}
			}()
		}
		var late <-chan time.Time
		if next < len(addrs) {
			late = time.After(headStart)
		}
		select {
		case o := <-outcomes:
			if running--; o.err == nil {
				go func() {
					for range running {
						if o := <-outcomes; o.err == nil {
							_ = o.conn.Close() // another connection was quicker
						}
					}
				}()
				c.connected(o.addr, o.conn)
				return o.conn, nil
			}
			if errs = append(errs, o.err); len(errs) == len(addrs) {
				return nil, fmt.Errorf(strings.Repeat("; %w", len(errs))[2:], errs...)
			}
		case <-late:
		}
	}
}

// connected notes which coordinator is asked from now on.
func (c *Client) connected(addr string, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = conn
	c.made++
	others := slices.DeleteFunc(slices.Clone(c.addrs), func(other string) bool { return other == addr })
	c.addrs = append([]string{addr}, others...)
}

// headStart is how long one coordinator is tried before the next is tried too, as in RFC 8305.
const headStart = 250 * time.Millisecond

// redirectWait is how long a client waits before it asks elsewhere, because the election may not be
// over.
const redirectWait = 50 * time.Millisecond

// newest is the number of the newest connection; several says that there are several coordinators.
func (c *Client) newest() (made int, several bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made, len(c.addrs) > 1
}

// giveUp turns to another coordinator, because the coordinator on a connection is silent.
func (c *Client) giveUp(made int) {
	c.mu.Lock()
	silent := c.addrs[0]
	rest := slices.DeleteFunc(slices.Clone(c.addrs), func(addr string) bool { return addr == silent })
	c.mu.Unlock()
	c.redirect(made, append(rest, silent))
}

// ask calls f. As long as the asked coordinator says that it does not lead, ask calls f again with
// another coordinator.
func (c *Client) ask(ctx context.Context, f func() error) error {
	for said := error(nil); ; {
		made, _ := c.newest()
		err := f()
		e := wire.Elsewhere(status.Convert(err))
		switch {
		case e == nil && said != nil && ctx.Err() != nil:
			return said
		case e == nil:
			return err
		}
		said = err
		c.redirect(made, e.Addrs)
		select {
		case <-time.After(redirectWait):
		case <-ctx.Done():
			return said
		}
	}
}

// redirect makes the next connection go to other coordinators, unless a newer connection than the
// given one exists.
func (c *Client) redirect(made int, addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made != c.made || c.last == nil {
		return
	}
	c.addrs = slices.Clone(addrs)
	for addr := range strings.SplitSeq(c.Target, ",") {
		if !slices.Contains(c.addrs, addr) {
			c.addrs = append(c.addrs, addr)
		}
	}
	reset(c.last) // gRPC then makes another connection
	c.last = nil
}

// reset ends a connection with a TCP reset, unlike the death of a process. Otherwise a slow
// coordinator that leads after all would take the client for dead, and end the client's job.
func reset(conn net.Conn) {
	if abrupt, ok := conn.(abruptConn); ok {
		conn = abrupt.raw
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // tcp(7): the connection is closed with a reset
	}
	_ = conn.Close() // the error does not matter any more
}
