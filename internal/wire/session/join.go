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

// RefusedError says that the coordinator does not want this agent. Trying again cannot help.
type RefusedError struct {
	Node, Target, Why string
	// Taken, if it is valid, is the address of this node, whose name another one has.
	Taken netip.Addr
}

// Another is a name that this node may have in place of one that is taken: with its address, or if
// a node of its machine has that, with the process id. It is empty where another name would not
// help.
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

// Options are what an agent says of itself, and how it reaches the coordinator. Only Target and Node are needed.
type Options struct {
	// Target is the coordinator's HOST:PORT.
	Target string
	// Dial makes a connection to the coordinator; TCP to Target when nil.
	Dial func(ctx context.Context) (net.Conn, error)
	// Proof is a secret with which a guardian of the ranks ends a connection, below TLS, once the session is over, with this process
	// perhaps, and no rank of it lives or will ever again: the coordinator knows the SHA-256, and counts the node as lost at once. By any
	// other end it learns nothing, and the lease decides. Nobody can prove anything when it is zero.
	Proof [wire.ProofSize]byte
	// Voter is this process as one that may come to coordinate the job; nil when it is none. DialAt makes a connection, as Dial does, to one
	// of them, HOST:PORT; TCP when nil.
	Voter  Voter
	DialAt func(ctx context.Context, addr string) (net.Conn, error)
	// Lease is the one that the coordinator is likely to give; 15 s when 0.
	Lease time.Duration
	// Elsewhere, if there is any, is where the coordinator is, or may come to be: the Addrs of an [ElsewhereError], or the peers of a cluster.
	Elsewhere []string
	// TLS is nil only for [Pipe] and on one machine.
	TLS *tls.Config
	// Node describes the machine. Without an address it gets the one from which the coordinator is reached.
	Node placement.Node
	// Facts are what must be the same on every node, by flag name; none to go along with any job.
	Facts map[string]string
	// Former, if set, is the [Session.Membership] of an agent of this node that has died and whose ranks live: this one goes on in
	// its place, and is asked at once to [Restate] what it runs. That the other is dead must not have been proven.
	Former Membership
	// Began, if set, hears by what the coordinator will tell the session from others, before it joins.
	Began func(instance string)
	// Clock is what the lease is measured with; time since Join when nil. CLOCK_BOOTTIME also counts while the machine is suspended.
	Clock func() time.Duration
	// Heard tells, by Clock, from when the lease runs anew, and how long it is. It must not wait.
	Heard func(at, lease time.Duration)
	// Warn hears why the coordinator cannot be reached, when that changes, from any goroutine; slog's default logger when nil.
	Warn func(error)
}

// Voter is one that keeps the state of a job, and may come to coordinate it.
type Voter interface {
	// Open has it listen at an address of this node for a coordinator that wants its vote, and says how that reaches it: a zero value that it
	// does not.
	Open(at netip.Addr) quorum.Voter
	// Learn hears where the coordinator is, or may come to be.
	Learn(addrs []string)
}

// noVoter is a process that only runs ranks.
type noVoter struct{}

func (noVoter) Open(netip.Addr) quorum.Voter { return quorum.Voter{} }

func (noVoter) Learn([]string) {}

// Membership is what a coordinator knows an agent by.
type Membership struct{ Instance, Epoch string }

// Join reaches the coordinator, trying again until ctx ends, and returns once it has welcomed this node. A [RefusedError] or a
// wrong token ends it at once.
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
		o.Voter = noVoter{}
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
		d.voters, d.turn = o.Elsewhere, -1 // the first leads
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
