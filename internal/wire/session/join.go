package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/placement"
)

// RefusedError says that the coordinator refuses this agent. Trying again cannot help.
type RefusedError struct {
	Node, Target, Why string
	// Over says that this agent tried to join after the end of its job.
	Over bool
	// Taken, if valid, is the address of this node, and says that its name is taken.
	Taken netip.Addr
}

// Another returns a name to use instead of a taken name. The new name contains the node's address,
// or the process ID if another node of the machine already has the name with the address. It is
// empty if another name would not help.
func (e *RefusedError) Another() string {
	if !e.Taken.IsValid() {
		return ""
	}
	addr := "-" + strings.ReplaceAll(e.Taken.WithZone("").String(), ":", "-")
	if strings.HasSuffix(e.Node, addr) {
		return e.Node + "-" + strconv.Itoa(os.Getpid())
	}
	return e.Node + addr
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the coordinator at %s refused node %s: %s", e.Target, e.Node, e.Why)
}

// Options describe an agent and how it reaches the coordinator. Only Target and Node are needed.
type Options struct {
	// Target is the coordinator's HOST:PORT.
	Target string
	// Connect connects to the coordinator in this process; nil if it is reached through Dial, with
	// gRPC and TLS.
	Connect func(ctx context.Context) (Conn, error)
	// Dial connects to the coordinator; TCP to Target when nil.
	Dial func(ctx context.Context) (net.Conn, error)
	// Proof is a secret with which a guardian ends the connection, below TLS, once the session is
	// over and its ranks are dead for good. The coordinator knows the SHA-256 of the secret, and
	// then counts the node as lost at once. After any other end of the connection, the lease
	// decides. A zero Proof proves nothing.
	Proof [wire.ProofSize]byte
	// Voter is this process as a voter that may be elected to coordinate the job; nil if it cannot
	// be elected. DialAt connects to a coordinator at HOST:PORT; TCP when nil.
	Voter  Voter
	DialAt func(ctx context.Context, addr string) (net.Conn, error)
	// Lease is the lease that the coordinator will probably give; 15 s when 0.
	Lease time.Duration
	// Elsewhere is where the coordinator is or may be elected: the Addrs of an [ElsewhereError], or
	// the peers of a cluster. It may be empty.
	Elsewhere []string
	// TLS is nil only for [Pipe] and on one machine.
	TLS *tls.Config
	// Node describes the machine. If it has no address, it gets the local address of the route to
	// the coordinator.
	Node placement.Node
	// Facts are settings that must be the same on every node, by flag name. An agent without Facts
	// may join any job.
	Facts map[string]string
	// Former, if set, is the [Session.Membership] of an agent of this node that has died while its
	// ranks live. This agent replaces the former agent, and is asked at once to [Restate] its
	// reports. The former agent must not have been proven dead.
	Former Membership
	// Began, if set, is called before joining. instance distinguishes this session from others.
	Began func(instance string)
	// Clock measures the lease; time since Join when nil. CLOCK_BOOTTIME also runs while the
	// machine is suspended.
	Clock func() time.Duration
	// Heard is called when the lease is renewed, with the lease's beginning (by Clock) and its
	// length. It must not block.
	Heard func(at, lease time.Duration)
	// Warn is called with the reason why the coordinator cannot be reached, when the reason
	// changes, from any goroutine; slog's default logger when nil.
	Warn func(error)
}

// Voter is a process that keeps the state of a job and may be elected to coordinate it.
type Voter interface {
	// Open listens at an address of this node for a coordinator that wants its vote, and returns
	// how the coordinator reaches this voter; the zero value if it does not listen.
	Open(at netip.Addr) quorum.Voter
	// Learn gets the addresses where the coordinator is or may be elected.
	Learn(addrs []string)
}

// nonVoter is a process that only runs ranks.
type nonVoter struct{}

func (nonVoter) Open(netip.Addr) quorum.Voter { return quorum.Voter{} }

func (nonVoter) Learn([]string) {}

// Membership has the facts by which a coordinator recognizes an agent.
type Membership struct{ Instance, Epoch string }

// Join connects to the coordinator, retrying until ctx ends, and returns once it has welcomed this
// node. A [RefusedError] or a wrong token ends it at once.
func Join(ctx context.Context, o Options) (*Session, error) {
	start := time.Now()
	if o.Dial == nil {
		o.Dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", o.Target) }
	}
	if o.DialAt == nil {
		o.DialAt = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Clock == nil {
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	if o.Heard == nil {
		o.Heard = func(_, _ time.Duration) {}
	}
	if o.Warn == nil {
		o.Warn = func(err error) { slog.Warn(err.Error()) }
	}
	if o.Voter == nil {
		o.Voter = nonVoter{}
	}
	if why := wire.ExcessOfNode(wire.FromNode(o.Node)); why != "" {
		return nil, &RefusedError{Node: o.Node.Name, Target: o.Target, Why: why}
	}
	d := dialer{Options: o, instance: cmp.Or(o.Former.Instance, rand.Text()), epoch: o.Former.Epoch, home: o.Target}
	if o.Began != nil {
		o.Began(d.instance)
	}
	d.lease = cmp.Or(o.Lease, wire.DefaultLease)
	if len(o.Elsewhere) > 0 {
		d.voters, d.next = o.Elsewhere, -1 // the first address is the leader's
	}
	l, err := d.connect(ctx)
	switch {
	case err == nil:
	case permanent(err):
		return nil, err
	default:
		return nil, fmt.Errorf("node %s gave up joining (%w): %w", o.Node.Name, context.Cause(ctx), err)
	}
	w := l.first.GetWelcome()
	d.Node, d.epoch, d.lease = l.node, w.GetEpoch(), w.GetLease().AsDuration()
	s := newSession(d, w, l)
	go s.run()
	return s, nil
}
