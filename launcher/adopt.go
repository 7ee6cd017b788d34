package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/golaunch/golaunch/internal/session"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/keep"
	"github.com/golaunch/golaunch/internal/proc"
)

// errTooLate says that the ranks of an agent that has died could not be taken over.
var errTooLate = errors.New("too late to go on with the ranks of an earlier agent")

// adopt is runAgent with ranks that outlive this process: it goes on with those that it finds. When it cannot even join, they are left to
// an agent that can.
func (n *nodeLife) adopt(ctx context.Context, m membership, a *agent.Agent, welcomed func(*session.Session)) error {
	k, err := keep.Open(n.base, n.Warn)
	if err != nil {
		return err
	}
	session, err := n.takePlace(ctx, m, k)
	switch {
	case errors.Is(err, errTooLate) || err != nil && ctx.Err() != nil:
		return errors.Join(err, k.End())
	case err != nil:
		return errors.Join(err, k.Leave())
	}
	welcomed(session)
	if len(k.Left.Scopes) > 0 {
		n.Say(m.node.Name + " goes on with the ranks of an earlier agent")
	}
	a.Session, a.Keeper = session, k
	_, err = a.Run(ctx)
	return errors.Join(err, k.End())
}

// takePlace joins, in the place of the agent whose ranks the keeper has, if any: then within their lease.
func (n *nodeLife) takePlace(ctx context.Context, m membership, k *keep.Keeper) (*session.Session, error) {
	o := session.Options{
		Target: m.target, Dial: k.Dial(m.dial), Proof: k.Proof, TLS: m.tls, Node: m.node, Warn: n.Warn,
		Clock: proc.BootTime, Heard: func(at, lease time.Duration) { k.Renew(at + lease) },
		Elsewhere: m.elsewhere, DialAt: func(ctx context.Context, addr string) (net.Conn, error) {
			return k.Dial(func(ctx context.Context) (net.Conn, error) { return dialAt(ctx, addr) })(ctx)
		},
	}
	if k.Left.Membership != nil {
		if err := json.Unmarshal(k.Left.Membership, &o.Former); err != nil {
			return nil, fmt.Errorf("%w: %w", errTooLate, err)
		}
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, k.Left.Lease-proc.BootTime(), errTooLate)
		defer cancel()
	}
	s, err := session.Join(ctx, o)
	if err != nil {
		if _, refused := errors.AsType[*session.RefusedError](err); refused && k.Left.Membership != nil {
			err = fmt.Errorf("%w: %w", errTooLate, err)
		}
		return nil, err
	}
	membership, err := json.Marshal(s.Membership())
	if err != nil {
		return nil, err
	}
	k.Joined(membership)
	return s, nil
}
