package endpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"
)

// keepAlive ends a connection whose peer was silent for half a minute, so that a new connection is
// made.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Dial connects to an endpoint as a controller with a key, waits for a worker, and returns its
// stream and its first frame. The caller calls taken to take the worker.
func Dial(ctx context.Context, addr string, config *tls.Config, key string) (s *Stream, first []byte, taken func() error, err error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: helloTimeout, KeepAliveConfig: keepAlive}, Config: forEndpoints(config)}
	at, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reach the workers at %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { at.Close() })
	defer stop()
	if _, err = io.WriteString(at, key); err == nil {
		first, _, err = readHello(at)
	}
	if err != nil {
		at.Close()
		return nil, nil, nil, fmt.Errorf("wait for a worker at %s: %w", addr, err)
	}
	return newStream(at), first, func() error {
		_ = at.SetWriteDeadline(time.Now().Add(helloTimeout))
		_, err := at.Write([]byte{1})
		_ = at.SetWriteDeadline(time.Time{})
		return err
	}, nil
}
