package session

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

// dialer connects to the coordinator, and finds out where it is.
//
// It tries a list of places. When a process that does not lead names the leader, the dialer tries
// that place at once, even if the list does not have it: the voters may have been replaced while
// the agent was away. This is safe, because both the naming and the named process must show a
// coordinator's certificate of the same token. The answer may be outdated, though. So a named place
// is tried once, and at most [maxBelieved] named places are tried in a row. After these, the dialer
// continues in the list where it was, so that no place is skipped.
type dialer struct {
	Options
	instance, epoch string
	lease           time.Duration
	// voters are the addresses where the coordinator is or may be elected. next counts the tried
	// addresses.
	voters []string
	next   int
	// named is where the coordinator is according to the process asked last. believed counts the
	// named places that were tried in a row.
	named    string
	believed int
	// lost is the place that could not be reached the last time. The dialer tells lost to the next
	// process that it asks, so that this process does not name the same place again.
	lost string
	// home is the Target of the Options.
	home string
	// bound says that the agent has had orders, or belongs to a cluster, so it may not begin anew
	// with another coordinator at the same place.
	bound bool
	// shared says that the coordinator serves a cluster.
	shared bool
}

// maxBelieved bounds the named places that are tried in a row: one place, and another that the
// process there names.
const maxBelieved = 2

// maxPlaces bounds the places that an agent tries.
const maxPlaces = 4 * wire.MaxVoters

// addVoters adds places to try: the known voters may have been replaced since the agent last heard
// of them.
func (d *dialer) addVoters(addrs []string) {
	d.voters = slices.Clone(d.voters) // the session's
	for _, addr := range addrs {
		if len(d.voters) < maxPlaces && !slices.Contains(d.voters, addr) {
			d.voters = append(d.voters, addr)
		}
	}
}

// scatter gives each agent another order of the voters after the first, the leader. So no voter has
// to greet all agents at once if the leader is lost.
func (d *dialer) scatter() {
	if len(d.voters) < 3 {
		return
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(d.Node.Name)) // never fails (hash.Hash)
	others := d.voters[1:]
	first := int(sum.Sum32() % uint32(len(others)))
	d.voters = slices.Concat(d.voters[:1], others[first:], others[:first])
}

// nextTarget chooses the named place, or the next voter if there is any. The first voter is the
// coordinator that was lost.
func (d *dialer) nextTarget() {
	switch {
	case d.named != "":
		d.turnTo(d.named)
		d.named = ""
		d.believed++
	case len(d.voters) > 0:
		d.believed = 0
		d.next++ // this is a copy: a session begins with the first voter each time
		d.turnTo(d.voters[d.next%len(d.voters)])
	}
}

func (d *dialer) turnTo(addr string) {
	dial := d.DialAt
	d.Target, d.Connect, d.Dial = addr, nil, func(ctx context.Context) (net.Conn, error) { return dial(ctx, addr) }
}

// hear learns from a failed attempt, and returns how long to wait before the next attempt. wait is
// the default.
func (d *dialer) hear(err error, wait time.Duration) time.Duration {
	if _, unreachable := errors.AsType[*unreachableError](err); unreachable {
		d.lost = d.Target
		return wait
	}
	if d.lost == d.Target {
		d.lost = ""
	}
	e, elsewhere := errors.AsType[*wire.ElsewhereError](err)
	if h, hint := errors.AsType[*hintError](err); hint {
		e = h.of
		d.addVoters(e.Addrs)
	} else if elsewhere {
		d.voters = append([]string{d.home}, e.Addrs...)
	} else {
		return wait
	}
	told := min(max(0, e.Wait), d.lease/10)
	if e.Leader == "" || e.Leader == d.Target || d.believed == maxBelieved {
		return max(wait, told)
	}
	d.named = e.Leader
	return told
}

// maxRedial is the longest wait between attempts to connect, give or take half. So a coordinator
// that is started again has all its agents back within a second or two.
const maxRedial = 700 * time.Millisecond

// connect connects at once if possible, and otherwise retries with growing waits. When ctx ends it
// returns why it has failed so far.
func (d dialer) connect(ctx context.Context) (*agentStream, error) {
	longest := maxRedial
	if len(d.voters) > 0 {
		longest = min(longest, d.lease/40) // so each of five voters is asked more than once in the rest of the lease
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(0))
	var why error
	for {
		d.nextTarget()
		l, err := d.dial(ctx)
		if err == nil || d.permanent(err) {
			return l, err
		}
		next := d.hear(err, wait.NextBackOff())
		if ctx.Err() == nil && d.isNews(why, err) {
			d.Warn(fmt.Errorf("node %s keeps trying: %w", d.Node.Name, err))
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return nil, why
		}
	}
}

// isNews reports whether people should be told about a failure. They are not told about a failure
// like the last one. They are told about voters that do not lead only once all voters were asked
// twice.
func (d dialer) isNews(before, now error) bool {
	if n := len(d.voters); n > 0 {
		return d.next == 2*n && d.believed == 0 // a named place between two places of the list does not count
	}
	return before == nil || before.Error() != now.Error()
}

// permanent reports whether trying again cannot help. While there are other voters, a failure at
// one address is not permanent.
func (d dialer) permanent(err error) bool {
	return d.final(err) || len(d.voters) == 0 && permanent(err)
}

// final reports whether an answer ends the session that got it.
func (d dialer) final(err error) bool {
	_, refused := errors.AsType[*RefusedError](err)
	_, elsewhere := errors.AsType[*wire.ElsewhereError](err)
	return refused || elsewhere && d.epoch != ""
}

// permanent reports whether trying again at the same place cannot help.
func permanent(err error) bool {
	var r *RefusedError
	var q *RequestError
	return errors.As(err, &r) || errors.As(err, &q) || errors.Is(err, mtls.ErrToken) || errors.Is(err, mtls.ErrNoTLS)
}
