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

// dialer makes links to the coordinator, wherever that is.
//
// It goes through a list of places, and turns aside when one that does not lead names one that does: there it goes at once. It believes any
// name, also one that is not in its list, for the voters may have been replaced while it was away. Nothing is lost by that: who says so has
// shown a coordinator's certificate of the same token, and who is named has to show one before it is told anything. A name may be wrong,
// though, or of yesterday. So what was named is tried once; of those that name each other [maxBelieved] are; and then the list goes on where
// it was, so that nothing in it is passed over.
type dialer struct {
	Options
	instance, epoch string
	lease           time.Duration
	// voters are where the coordinator is or may come to be; turn counts those that were tried.
	voters []string
	turn   int
	// named is where the coordinator is by the word of the one that was asked last, and believed counts the names in a row that were tried.
	named    string
	believed int
	// lost is where nobody was found the last time: who has not heard either that the coordinator has gone from there is not to name it.
	lost string
	// home is the Target of the Options.
	home string
	// bound says that the agent has had orders, or is a cluster's, and may not begin anew with another coordinator at the same place.
	bound bool
	// shared says that the coordinator is a cluster's.
	shared bool
}

// maxBelieved bounds the names in a row that are tried: one, and one of which that has heard since.
const maxBelieved = 2

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

// scatter has each agent turn to another of the voters first when the one is lost that leads, which is the first of them: none of those has to
// greet them all.
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

// aim turns to the place that was named, or to the next voter, if there are any. The first is the coordinator that was lost.
func (d *dialer) aim() {
	switch {
	case d.named != "":
		d.turnTo(d.named)
		d.named = ""
		d.believed++
	case len(d.voters) > 0:
		d.believed = 0
		d.turn++ // on a copy: a session begins with the first each time
		d.turnTo(d.voters[d.turn%len(d.voters)])
	}
}

func (d *dialer) turnTo(addr string) {
	dial := d.DialAt
	d.Target, d.Dial = addr, func(ctx context.Context) (net.Conn, error) { return dial(ctx, addr) }
}

// hear takes in why there is no link, and returns how long to wait before the next attempt; wait is for those that nobody has told.
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
		d.widen(e.Addrs)
	} else if elsewhere {
		d.refer(e.Addrs)
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
		next := d.hear(err, wait.NextBackOff())
		if ctx.Err() == nil && d.tell(why, err) {
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

// tell says that a failure is news: one like that before is not, nor is a voter that does not lead, before all were asked twice.
func (d dialer) tell(before, now error) bool {
	if n := len(d.voters); n > 0 {
		return d.turn == 2*n && d.believed == 0 // what is named between two of the list is no turn
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
