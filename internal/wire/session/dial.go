package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/placement"
)

// agentStream is an agent's side of a stream. Messages sent to out go to the coordinator. in has
// the messages after first, and is closed at the end of the stream. ended is then the reason.
type agentStream struct {
	node   placement.Node
	first  *pb.ToAgent
	out    chan *pb.FromAgent
	in     chan *pb.ToAgent
	ended  error
	stream pb.Rendezvous_JoinClient
	cancel context.CancelFunc
	conn   Conn
}

// helloLimit bounds a hello. A coordinator that greets thousands of agents at once may need many
// seconds.
const helloLimit = 30 * time.Second

// minLease keeps heartbeats below a thousand a second.
const minLease = 4 * time.Millisecond

// patience is how long an agent waits for each step: the connection, the TLS handshake, and the
// answer to its hello.
type patience struct{ dial, secure, hello time.Duration }

// patience is short if another place may be quicker. But it is longer than the time for which a
// process that does not lead may hold an agent's request, and longer than a leader may need for
// thousands of agents at once.
func (d dialer) patience() patience {
	if len(d.voters) == 0 {
		return patience{wire.DialLimit, helloLimit, helloLimit}
	}
	return patience{min(wire.DialLimit, d.lease/8), min(helloLimit, d.lease/2), min(helloLimit, d.lease/2)}
}

// unreachableError says that a place cannot be reached, or that no process listens there.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// dial connects once, opens a stream and says hello.
func (d dialer) dial(ctx context.Context) (*agentStream, error) {
	limits := d.patience()
	conn, err := d.open(ctx, limits)
	if err != nil {
		return nil, err
	}
	l := &agentStream{conn: conn, node: d.Node, out: make(chan *pb.FromAgent), in: make(chan *pb.ToAgent)}
	if !l.node.Addr.IsValid() {
		l.node.Addr = conn.LocalAddr()
	}
	if err := d.within(ctx, limits.hello, func(ctx context.Context) error { return d.welcome(ctx, l, limits.hello) }); err != nil {
		l.close()
		return nil, err
	}
	go l.receive()
	go l.send()
	return l, nil
}

// open connects to the coordinator.
func (d dialer) open(ctx context.Context, limits patience) (Conn, error) {
	if d.Connect != nil {
		return d.Connect(ctx)
	}
	conn, err := d.reach(ctx, limits.dial)
	if err != nil {
		return nil, err
	}
	n := &network{conn: conn}
	if err = d.within(ctx, limits.secure, func(ctx context.Context) error { return d.secure(ctx, n) }); err != nil {
		_ = n.Close() // the error no longer matters
		return nil, err
	}
	return n, nil
}

// within does a step for a limited time.
func (d dialer) within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && !permanent(err) {
		return fmt.Errorf("the coordinator at %s does not answer: %w", d.Target, err)
	}
	return err
}

// welcome says hello and waits for the answer.
func (d dialer) welcome(ctx context.Context, l *agentStream, patience time.Duration) (err error) {
	var streamCtx context.Context
	streamCtx, l.cancel = context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, l.cancel)()
	if l.stream, err = l.conn.Join(streamCtx); err != nil {
		return d.explain(err)
	}
	if err := l.stream.Send(d.hello(l.node, patience)); err != nil && status.Code(err) == codes.ResourceExhausted {
		return &RefusedError{Node: l.node.Name, Target: d.Target, Why: "the node's description is too long: " + err.Error()}
	}
	if l.first, err = l.stream.Recv(); err != nil {
		d.Node.Addr = l.node.Addr
		return d.explain(err)
	}
	if l.first.GetWelcome().GetLease().AsDuration() < minLease {
		return &RefusedError{Node: l.node.Name, Target: d.Target, Why: "its welcome cannot be read; install the same golaunch on both"}
	}
	return nil
}

func (d dialer) hello(n placement.Node, patience time.Duration) *pb.FromAgent {
	return &pb.FromAgent{Body: &pb.FromAgent_Hello{Hello: &pb.Hello{
		Protocol: wire.Protocol, Version: version.String(), Node: wire.FromNode(n), Instance: d.instance, Epoch: d.epoch, Facts: d.Facts,
		Time: timestamppb.Now(), Heartbeat: &pb.Heartbeat{At: durationpb.New(d.Clock())}, Voter: wire.FromVoter(d.Voter.Open(n.Addr)),
		Commitment: d.commitment(), Patience: durationpb.New(patience), Lost: d.lost,
	}}}
}

// commitment is the value by which the coordinator recognizes the proof.
func (o Options) commitment() []byte {
	if o.Proof == ([wire.ProofSize]byte{}) {
		return nil
	}
	sum := sha256.Sum256(o.Proof[:])
	return sum[:]
}

// explain distinguishes a refusal, and a job that continues elsewhere, from an end after which a
// new connection may help. If the agent is a member of the job and knows the job's voters, it
// expects that some of them do not lead, and learns other addresses from them. If there was only
// one coordinator, and another one is in its place, the job is over.
func (d dialer) explain(err error) error {
	s := status.Convert(err)
	e := wire.Elsewhere(s)
	if e != nil && (d.epoch == "" || len(d.voters) == 0) {
		return e
	}
	if s.Code() == codes.NotFound && d.epoch != "" && len(d.voters) == 0 && !d.bound {
		return &wire.ElsewhereError{Why: s.Message()}
	}
	if s.Code() == codes.FailedPrecondition || s.Code() == codes.NotFound && len(d.voters) <= 1 {
		return &RefusedError{Node: d.Node.Name, Target: d.Target, Why: s.Message(), Over: wire.IsOver(s)}
	}
	if s.Code() == codes.AlreadyExists {
		return &RefusedError{Node: d.Node.Name, Target: d.Target, Why: s.Message(), Taken: d.Node.Addr}
	}
	err = fmt.Errorf("the connection to the coordinator at %s broke: %s", d.Target, s.Message())
	if e != nil {
		return &hintError{err, e}
	}
	return err
}

// hintError is an end after which a connection to one of several other places may help.
type hintError struct {
	error
	of *wire.ElsewhereError
}

func (l *agentStream) receive() {
	defer close(l.in)
	for {
		msg, err := l.stream.Recv()
		if err != nil {
			l.ended = err
			return
		}
		select {
		case l.in <- msg:
		case <-l.stream.Context().Done():
			l.ended = context.Canceled
			return
		}
	}
}

// send returns when the stream ends. receive has the reason of the end.
func (l *agentStream) send() {
	for {
		select {
		case msg := <-l.out:
			if l.stream.Send(msg) != nil {
				return
			}
		case <-l.stream.Context().Done():
			return
		}
	}
}

// close ends the connection before the stream, so that the stream does not wait for last messages
// of gRPC and TLS.
func (l *agentStream) close() {
	_ = l.conn.Close() // the error no longer matters
	if l.cancel != nil {
		l.cancel()
	}
}
