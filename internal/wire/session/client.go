package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
)

// RequestError says that the coordinator refuses a request. Trying again cannot help.
type RequestError struct {
	Target, Why string
	// Bad says that the coordinator will always refuse the request, because it makes no sense or is
	// about something that does not exist. NotThere is set if something does not exist.
	Bad, NotThere bool
}

func (e *RequestError) Error() string { return e.Why + " (coordinator " + e.Target + ")" }

// ClientOptions say how a client reaches the coordinator. Only Target is needed.
type ClientOptions struct {
	// Target is the coordinator's HOST:PORT. It may name several coordinators, separated by commas,
	// one of which leads.
	Target string
	// Dial connects to one coordinator; TCP when nil. If Dial returns a [RequestError], the client
	// ends.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS is nil only for [Pipe] and on one machine.
	TLS *tls.Config
}

// Client asks the coordinator of a cluster. It may be used by several goroutines.
type Client struct {
	ClientOptions
	conn *grpc.ClientConn
	rpc  pb.ClusterClient

	mu sync.Mutex
	// first is the connection that Connect made, until gRPC takes it. last is the newest
	// connection. trouble is why no connection could be made.
	first, last net.Conn
	made        int
	trouble     error
	// addrs are the coordinators' addresses. The first is asked next.
	addrs []string
}

// answerLimit bounds the wait for a coordinator that does not answer for the moment.
const answerLimit = 10 * time.Second

// Connect connects to the coordinator. Later calls reconnect when the connection has broken.
func Connect(ctx context.Context, o ClientOptions) (*Client, error) {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	c := &Client{ClientOptions: o, addrs: strings.Split(o.Target, ",")}
	ctx, cancel := context.WithTimeout(ctx, wire.DialLimit)
	defer cancel()
	conn, err := c.secure(ctx)
	if err != nil {
		return nil, err
	}
	c.first = conn
	c.conn, err = grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(c.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // dial secures it
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: wire.DialLimit,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: wire.PingAfter, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
		grpc.WithMaxHeaderListSize(wire.MaxHeader),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot talk to the coordinator at %s: %w", o.Target, err), conn.Close())
	}
	c.rpc = pb.NewClusterClient(c.conn)
	return c, nil
}

// Close ends the client. A job that it submitted, and that is not detached, ends too.
func (c *Client) Close() error {
	c.mu.Lock()
	first := c.first
	c.first = nil
	c.mu.Unlock()
	if first != nil {
		return errors.Join(first.Close(), c.conn.Close())
	}
	return c.conn.Close()
}

// dial is gRPC's dialer.
func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	c.mu.Lock()
	conn := c.first
	c.first = nil
	c.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn, err := c.secure(ctx)
	c.mu.Lock()
	c.trouble = err
	lost := err != nil && len(c.addrs) == 1 && permanent(err)
	c.mu.Unlock()
	if lost { // gRPC would keep trying, and calls would wait for it
		go func() { _ = c.conn.Close() }() // this is the only Close
	}
	return conn, err
}

// secureAt connects to one of the coordinators.
func (c *Client) secureAt(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := c.Dial(ctx, addr)
	if _, never := errors.AsType[*RequestError](err); never {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach the coordinator at %s: %w", addr, err)
	}
	if c.TLS == nil {
		return raw, nil
	}
	conn := tls.Client(raw, c.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(mtls.ExplainClient(err, addr, c.TLS), raw.Close())
	}
	return abruptConn{conn, raw}, nil
}

// abruptConn closes without the TLS alert. After an alert, the coordinator would not see that the
// connection was closed.
type abruptConn struct {
	*tls.Conn
	raw net.Conn
}

func (c abruptConn) Close() error { return c.raw.Close() }

// explain makes an error for users from an error of gRPC.
func (c *Client) explain(err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.NotFound:
		return &RequestError{c.Target, s.Message(), true, true}
	case codes.InvalidArgument, codes.AlreadyExists:
		return &RequestError{c.Target, s.Message(), true, false}
	case codes.FailedPrecondition, codes.ResourceExhausted:
		return &RequestError{c.Target, s.Message(), false, false}
	case codes.Unimplemented:
		return &RequestError{c.Target, "the coordinator does not know this request; install the same golaunch on both", false, false}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != nil {
		return c.trouble
	}
	return fmt.Errorf("the coordinator at %s does not answer: %s", c.Target, s.Message())
}

// mendable reports whether a stream may be opened again after it ended with this error.
func (c *Client) mendable(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	code := status.Code(err)
	return (code == codes.Unavailable || code == codes.Aborted) && (c.trouble == nil || len(c.addrs) > 1 || !permanent(c.trouble))
}

var errSilent = fmt.Errorf("it was silent for %v", answerLimit)

// call makes a unary call.
func call[Q, A any](ctx context.Context, c *Client, f func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var a A
	err := c.ask(ctx, func() (err error) {
		a, err = f(ctx, q, grpc.WaitForReady(true))
		return err
	})
	return a, c.explain(err)
}

// Stop asks a job, or all jobs if id is empty, to end with an exit code and a reason. It returns at
// once, with the jobs that it has asked. Asking again kills the ranks that still live.
func (c *Client) Stop(ctx context.Context, id string, code int, why string) ([]string, error) {
	reply, err := call(ctx, c, c.rpc.Stop, &pb.StopRequest{Job: id, Code: int32(code), Why: wire.Plain(why)})
	return reply.GetJobs(), err
}

// Save is like Stop, but the ranks first have the time within to save.
func (c *Client) Save(ctx context.Context, id string, within time.Duration, code int, why string) ([]string, error) {
	reply, err := call(ctx, c, c.rpc.Stop, &pb.StopRequest{Job: id, Code: int32(code), Why: wire.Plain(why), Save: durationpb.New(within)})
	return reply.GetJobs(), err
}

// StopBy asks a job to end because of a signal to this process. The ranks get that signal.
func (c *Client) StopBy(ctx context.Context, id string, sig syscall.Signal, why string) error {
	_, err := call(ctx, c, c.rpc.Stop, &pb.StopRequest{Job: id, Code: 128 + int32(sig), Why: wire.Plain(why), Signal: int32(sig)})
	return err
}

// Signal forwards a signal to the ranks of a job.
func (c *Client) Signal(ctx context.Context, id string, number syscall.Signal) error {
	_, err := call(ctx, c, c.rpc.Forward, &pb.ForwardRequest{Job: id, Number: int32(number)})
	return err
}

// Drain takes a node out of use and returns the jobs that still hold a share of it. The agent
// leaves when no job holds a share any more.
func (c *Client) Drain(ctx context.Context, node string) ([]string, error) {
	reply, err := call(ctx, c, c.rpc.Drain, &pb.DrainRequest{Node: node})
	return reply.GetJobs(), err
}

// Swap makes the jobs give up a node, and returns when the node's agent has left. Ranks have the
// time within to get ready.
func (c *Client) Swap(ctx context.Context, node string, within time.Duration) error {
	return c.explain(c.ask(ctx, func() error {
		_, err := c.rpc.Drain(ctx, &pb.DrainRequest{Node: node, Leaves: true, Within: durationpb.New(within)}, grpc.WaitForReady(true))
		return err
	}))
}

// Status describes the cluster.
func (c *Client) Status(ctx context.Context) (report.Status, error) {
	return c.Query(ctx, report.Query{})
}

// Job describes one job.
func (c *Client) Job(ctx context.Context, id string) (report.JobStatus, error) {
	s, err := c.Query(ctx, report.Query{Job: id, Jobs: true})
	if err != nil {
		return report.JobStatus{}, err
	}
	return s.Jobs[0], nil
}

// Query describes a part of the cluster. Each message of the answer may take as long as the whole
// answer of another call.
func (c *Client) Query(ctx context.Context, q report.Query) (s report.Status, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(answerLimit, func() { cancel(errSilent) })
	defer limit.Stop()
	err = c.ask(ctx, func() error {
		s = report.Status{}
		stream, err := c.rpc.Status(ctx, &pb.StatusRequest{Job: q.Job, Jobs: q.Jobs, Open: q.Open, Brief: q.Brief}, grpc.WaitForReady(true))
		for err == nil {
			var m *pb.StatusReply
			if m, err = stream.Recv(); err == nil {
				limit.Reset(answerLimit)
				wire.AddStatus(&s, m)
			}
		}
		return err
	})
	switch {
	case wire.Elsewhere(status.Convert(err)) != nil:
		return report.Status{}, c.explain(err)
	case errors.Is(context.Cause(ctx), errSilent):
		return report.Status{}, fmt.Errorf("the coordinator at %s does not answer: %w", c.Target, errSilent)
	case !errors.Is(err, io.EOF):
		return report.Status{}, c.explain(err)
	case q.Job != "" && len(s.Jobs) != 1:
		return report.Status{}, fmt.Errorf("the coordinator at %s does not say how job %s stands; install the same golaunch on both", c.Target, q.Job)
	}
	return s, nil
}
