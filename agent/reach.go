package agent

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// patienceToReach is how long the port of the master may take to be reached. Linux sends the first packet of a connection anew
	// after 1, 3 and 7 s (tcp(7), tcp_syn_retries).
	patienceToReach = 10 * time.Second
	// reachAgainMin and reachAgainMax bound the wait after a connection that was refused, reset, or had no route.
	reachAgainMin = 20 * time.Millisecond
	reachAgainMax = time.Second
)

// reach finds out whether this node could start its ranks, and reaches the master's port, and reports it; the newest question ends the one
// before. It goes on when units stop, for others may wait for it.
func (s *share) reach(o job.Reach) {
	ctx := s.ask(&s.unask)
	s.able(ctx, o.Ranks, func(unable report.Exit) {
		answer := job.Reached{Node: o.Node, Seq: o.Seq, Unable: unable}
		if unable.OK() {
			late := o.Late && s.work.Task.Rank0Store
			if err := reachPort(ctx, net.JoinHostPort(o.Addr, strconv.Itoa(o.Port)), late); err != nil {
				answer.Err = err.Error()
				if why := ports.Why(err); why != "" {
					answer.Err += " (" + why + ")"
				}
			}
		}
		if ctx.Err() == nil {
			s.report(answer)
		}
	})
}

// reachPort connects to a port and says no word there. A refusal will do only with late: otherwise it comes from a firewall, or from
// another machine than the one that listens. The error is the last reason why not, in the words of the C library.
func reachPort(ctx context.Context, addr string, late bool) error {
	ctx, cancel := context.WithTimeout(ctx, patienceToReach)
	defer cancel()
	why := error(syscall.ETIMEDOUT)
	again := backoff.NewExponentialBackOff(backoff.WithInitialInterval(reachAgainMin), backoff.WithMaxInterval(reachAgainMax))
	try := func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		switch {
		case err == nil:
			return c.Close()
		case late && errors.Is(err, syscall.ECONNREFUSED):
			return nil
		}
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			why = err
		}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			why = errno
		}
		return err
	}
	if backoff.Retry(try, backoff.WithContext(again, ctx)) != nil {
		return why
	}
	return nil
}
