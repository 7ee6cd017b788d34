package controller

import (
	"context"
	"net"
	"time"

	"github.com/golaunch/golaunch/internal/endpoint"
)

// askLimit bounds the wait for nodes that are asked where their workers are.
const askLimit = 10 * time.Second

// reach brings the workers of a group that cannot come to the program's socket by themselves: it waits for them at the endpoints of their nodes.
func (c *controller) reach(s starting) *endpoint.Reach {
	return &endpoint.Reach{
		TLS: c.tls, Key: s.Key, Warn: func(err error) { c.tell(warning{"warning", err.Error()}) },
		Find: func(ctx context.Context) (map[string]string, error) {
			client, err := c.cluster()
			if err != nil {
				return nil, err
			}
			return client.Endpoints(ctx, s.ID, askLimit)
		},
		Bring: func(ctx context.Context, conn net.Conn, first []byte, taken func() error) {
			bring(ctx, s.Socket, conn, first, taken)
		},
	}
}

// bring connects a worker with the program.
func bring(ctx context.Context, socket string, conn net.Conn, first []byte, taken func() error) {
	defer conn.Close()
	program, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	defer program.Close()
	if _, err := program.Write(first); err != nil || taken() != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		program.Close()
	})
	defer stop()
	endpoint.Relay(program, conn)
}
