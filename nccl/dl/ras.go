package dl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// RASAddr is the address at which NCCL's RAS service listens, unless NCCL_RAS_ADDR is set
// (src/ras/client_support.cc). All processes of a node share the address, even processes of
// different jobs. The kernel chooses the process that answers a connection.
const RASAddr = "localhost:28028"

const (
	// patience is how long a process may take to answer a line. NVIDIA's client reconnects after
	// one second.
	patience = 5 * time.Second
	// extra is how much longer than the given wait NCCL may take (RAS_COLLECTIVE_EXTRA_TIMEOUT_SEC
	// in src/ras/ras_internal.h).
	extra = 5 * time.Second
	// largest bounds a report. It is more than the JSON of a job with 16,384 ranks, each in four
	// communicators, which needs less than a kilobyte per rank and communicator.
	largest = 64 << 20
)

// Client is a connection to the RAS service in one process of an NCCL job. NCCL has the service
// since 2.24, unless NCCL_RAS_ENABLE=0 is set. The service knows the whole job. It sends one report
// and then closes the connection. Only one goroutine may use a Client, which closes its connection
// when its context ends.
//
// Query only jobs in trouble: queries have crashed jobs with NCCL 2.26.2, 2.27.3 and 2.29.7, mostly
// while communicators were being made (NVIDIA/nccl#1669, #1762 and #2346).
type Client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to the RAS service at addr, a host and a port. It takes at most 10 s.
func Dial(ctx context.Context, addr string) (*Client, error) {
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("reach NCCL's RAS service: %w; is it NCCL 2.24 or later, with this address in NCCL_RAS_ADDR?", err)
	}
	c := &Client{addr: addr, conn: conn, in: bufio.NewReader(conn)}
	reply, err := c.command(ctx, "CLIENT PROTOCOL 2")
	if err == nil && !strings.HasPrefix(reply, "SERVER PROTOCOL ") {
		err = fmt.Errorf("%s is not NCCL's RAS service: it said %q", addr, reply[:min(len(reply), 80)])
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Text returns NCCL's report for people. The service waits for other processes for the time wait,
// rounded to whole seconds and at least one, and for up to 5 s more. With an error, Text returns
// the text that it has read so far. It reads at most 64 MiB.
func (c *Client) Text(ctx context.Context, wait time.Duration, verbose bool) (string, error) {
	if verbose {
		return c.report(ctx, "VERBOSE STATUS", wait)
	}
	return c.report(ctx, "STATUS", wait)
}

// Report returns NCCL's report for programs, and waits as [Client.Text] does. With an error, Raw is
// the text that was read so far. Before NCCL 2.28.7 the error is errors.ErrUnsupported; Text then
// still works on the same connection.
func (c *Client) Report(ctx context.Context, wait time.Duration) (Report, error) {
	if err := c.set(ctx, "SET FORMAT json"); err != nil {
		return Report{}, err
	}
	raw, err := c.report(ctx, "STATUS", wait)
	if err != nil {
		return Report{Raw: raw}, err
	}
	return parseReport(raw)
}

// report reads until the service closes the connection. Both formats of reports end with a newline,
// unless the service failed.
func (c *Client) report(ctx context.Context, question string, wait time.Duration) (string, error) {
	seconds := max(1, (wait+time.Second-1)/time.Second)
	if err := c.set(ctx, fmt.Sprintf("TIMEOUT %d", seconds)); err != nil {
		return "", err
	}
	defer c.limit(ctx, seconds*time.Second+extra+patience)()
	if _, err := io.WriteString(c.conn, question+"\n"); err != nil {
		return "", c.failed(ctx, question, err)
	}
	raw, err := io.ReadAll(io.LimitReader(c.in, largest+1))
	switch {
	case err != nil:
		err = c.failed(ctx, question, err)
	case len(raw) > largest:
		raw, err = raw[:largest], c.failed(ctx, question, fmt.Errorf("the answer is larger than %d MiB", largest>>20))
	case !bytes.HasSuffix(raw, []byte("\n")):
		err = c.failed(ctx, question, io.ErrUnexpectedEOF)
	}
	return string(raw), err
}

// set sends a command that the service does not answer.
func (c *Client) set(ctx context.Context, command string) error {
	switch reply, err := c.command(ctx, command); {
	case err != nil:
		return err
	case strings.HasPrefix(reply, "ERROR: Unknown command"):
		return c.failed(ctx, command, fmt.Errorf("%w by this version of NCCL", errors.ErrUnsupported))
	case reply != "OK":
		return c.failed(ctx, command, fmt.Errorf("it said %q", reply))
	}
	return nil
}

// command sends a line and returns the line that answers it.
func (c *Client) command(ctx context.Context, line string) (string, error) {
	defer c.limit(ctx, patience)()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		return "", c.failed(ctx, line, err)
	}
	reply, err := c.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", c.failed(ctx, line, err)
	}
	return strings.TrimSpace(string(reply)), nil
}

// limit makes reads and writes fail after the time d. It also closes the connection when ctx ends,
// unless the caller has called the returned function before.
func (c *Client) limit(ctx context.Context, d time.Duration) func() bool {
	// SetDeadline fails only on a closed connection, which the next read or write reports.
	_ = c.conn.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, func() { c.conn.Close() })
}

func (c *Client) failed(ctx context.Context, line string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("ask NCCL's RAS service at %s for %s: %w", c.addr, line, err)
}
