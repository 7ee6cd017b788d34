package controller

import (
	"context"
	"net"
	"time"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

// askLimit bounds the wait for the nodes to answer where their workers are.
const askLimit = 10 * time.Second

// reach connects the workers that cannot reach the program's socket themselves. The controller
// waits for these workers at the endpoints of their nodes.
func (c *controller) reach(s startRequest) *endpoint.Reach {
	return &endpoint.Reach{
		TLS: c.tls, Key: s.Key, Warn: func(err error) { c.tell(warning{"warning", err.Error()}) },
		Find: func(ctx context.Context) (map[string]string, error) {
			client, err := c.cluster()
			if err != nil {
				return nil, err
			}
			return client.Endpoints(ctx, s.ID, askLimit)
		},
		Bring: func(ctx context.Context, worker *endpoint.Stream, first []byte, taken func() error) {
			if err := bring(ctx, s.Socket, worker, first, taken); err != nil {
				c.tell(warning{"warning", "the connection of a worker of " + s.ID + " has ended: " + err.Error()})
			}
		},
	}
}

// bring connects a worker with the program. It returns an error only if the program breaks the
// protocol.
func bring(ctx context.Context, socket string, worker *endpoint.Stream, first []byte, taken func() error) error {
	defer worker.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil // the program has ended or refuses connections for now: the worker waits
	}
	program := conn.(*net.UnixConn)
	defer conn.Close()
	if _, err := program.Write(first); err != nil || taken() != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		worker.Close()
		conn.Close()
	})
	defer stop()
	return endpoint.Forward(program, worker)
}
