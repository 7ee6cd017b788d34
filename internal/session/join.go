package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/internal/quorum"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// RefusedError says that the coordinator does not want this agent. Trying again cannot help.
type RefusedError struct {
	Node, Target, Why string
	// Taken, if it is valid, is the address of this node, whose name another one has.
	Taken netip.Addr
}

// Another is a name that this node may have in place of one that is taken; empty where another name would not help.
func (e *RefusedError) Another() string {
	if !e.Taken.IsValid() {
		return ""
	}
	return e.Node + "-" + strings.ReplaceAll(e.Taken.WithZone("").String(), ":", "-")
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

// dialer makes links to the coordinator.
type dialer struct {
	Options
	instance, epoch string
	lease           time.Duration
	// voters are where the coordinator is or may come to be; turn counts those that were tried.
	voters []string
	turn   int
	// home is the Target of the Options.
	home string
	// bound says that the agent has had orders, or is a cluster's, and may not begin anew with another coordinator at the same place.
	bound bool
	// shared says that the coordinator is a cluster's.
	shared bool
}

// refer has an agent turn to where the coordinator may be, and to where it began when that is known no more.
func (d *dialer) refer(addrs []string) { d.voters = append([]string{d.home}, addrs...) }

// maxPlaces bounds where an agent looks for the coordinator.
const maxPlaces = 4 * wire.MaxVoters

// widen has an agent turn to more voters: those that it knows may have been replaced since it last heard of them.
func (d *dialer) widen(addrs []string) {
	d.voters = slices.Clone(d.voters) // the session's
	for _, addr := range addrs {
		if len(d.voters) < maxPlaces && !slices.Contains(d.voters, addr) {
			d.voters = append(d.voters, addr)
		}
	}
}

// aim turns to the next voter, if there are any. The first is the coordinator that was lost.
func (d *dialer) aim() {
	if len(d.voters) == 0 {
		return
	}
	d.turn++ // on a copy: a session begins with the first each time
	addr, dial := d.voters[d.turn%len(d.voters)], d.DialAt
	d.Target, d.Dial = addr, func(ctx context.Context) (net.Conn, error) { return dial(ctx, addr) }
}

// maxRedial is the longest wait between attempts to connect, give or take half of it: a coordinator that is started again has all
// its agents back within a second or two.
const maxRedial = 700 * time.Millisecond

// connect makes a link, at once if possible, else trying again with ever longer waits. When ctx ends it returns why it failed so
// far.
func (d dialer) connect(ctx context.Context) (*agentLink, error) {
	longest := maxRedial
	if len(d.voters) > 0 {
		longest = min(longest, d.lease/40) // to ask each of five more than once in what may be left of the lease
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(0))
	var why error
	for {
		d.aim()
		l, err := d.dial(ctx)
		if err == nil || d.permanent(err) {
			return l, err
		}
		if e, ok := errors.AsType[*wire.ElsewhereError](err); ok {
			d.refer(e.Addrs)
		}
		if h, ok := errors.AsType[*hintError](err); ok {
			d.widen(h.addrs)
		}
		if ctx.Err() == nil && d.tell(why, err) {
			d.Warn(fmt.Errorf("node %s keeps trying: %w", d.Node.Name, err))
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return nil, why
		}
	}
}

// tell says that a failure is news: one like that before is not, nor is a voter that does not lead, before all were asked twice.
func (d dialer) tell(before, now error) bool {
	if n := len(d.voters); n > 0 {
		return d.turn == 2*n
	}
	return before == nil || before.Error() != now.Error()
}

// permanent says that trying again cannot help. What one voter's address has come to be does not matter while there are others.
func (d dialer) permanent(err error) bool {
	return d.final(err) || len(d.voters) == 0 && permanent(err)
}

// final says that an answer ends the session that got it.
func (d dialer) final(err error) bool {
	_, refused := errors.AsType[*RefusedError](err)
	_, elsewhere := errors.AsType[*wire.ElsewhereError](err)
	return refused || elsewhere && d.epoch != ""
}

// permanent says that trying again at the same place cannot help.
func permanent(err error) bool {
	var r *RefusedError
	var q *RequestError
	return errors.As(err, &r) || errors.As(err, &q) || errors.Is(err, mtls.ErrToken) || errors.Is(err, mtls.ErrNoTLS)
}
