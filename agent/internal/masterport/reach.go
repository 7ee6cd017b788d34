package masterport

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// reachLimit bounds the attempt to reach a port. Linux repeats a connection's first packet
	// after 1, 3 and 7 s (tcp(7), tcp_syn_retries).
	reachLimit = 10 * time.Second
	// retryMin and retryMax bound the pause after a connection that was refused, was reset or had
	// no route.
	retryMin = 20 * time.Millisecond
	retryMax = time.Second
)

// Reach connects to a port without sending anything. A refused connection counts as success only
// with acceptRefusal, because a firewall or another machine may have refused it. The error is the
// last reason, as the C library words it.
func Reach(ctx context.Context, addr string, acceptRefusal bool) error {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	why := error(syscall.ETIMEDOUT)
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryMin), backoff.WithMaxInterval(retryMax))
	try := func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		switch {
		case err == nil:
			return c.Close()
		case acceptRefusal && errors.Is(err, syscall.ECONNREFUSED):
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
	if backoff.Retry(try, backoff.WithContext(pause, ctx)) != nil {
		return why
	}
	return nil
}
