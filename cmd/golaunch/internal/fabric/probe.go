package fabric

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/golaunch/golaunch/internal/host/ports"
)

// probe lets the nodes of a test connect to a port of each other, both at once, and reports the
// direction that fails. It ends when each node has reached the other. limited bounds this node's
// attempt, which the other node's failure does not end.
func (n *node) probe(limited, ctx context.Context, o order, within ports.Range) error {
	s, err := n.listen(ctx, within)
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(ctx)
	reached, over := make(chan struct{}), make(chan struct{})
	go func() {
		s.awaitProbe(serving, sync.OnceFunc(func() { close(reached) }))
		close(over)
	}()
	defer func() {
		end()
		<-over
	}()
	if err := put(ctx, n.store, probeKey(o.Test, o.First), s.meeting()); err != nil {
		return err
	}
	m, err := n.meet(limited, o, probeKey(o.Test, !o.First))
	if err != nil {
		return err
	}
	conn, err := n.connect(limited, o.Peer, m, forProbe)
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not reached %v: %w", o.Peer, s.Addr(), context.Cause(ctx))
	}
}

// awaitProbe calls reached when the other node has connected, until ctx ends.
func (s *server) awaitProbe(ctx context.Context, reached func()) {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	var guests sync.WaitGroup
	defer guests.Wait()
	for range maxConns {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		guests.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			head := make([]byte, len(s.token)+1)
			if _, err := io.ReadFull(conn, head); err == nil && bytes.Equal(head, append(bytes.Clone(s.token), forProbe)) {
				reached()
			}
		})
	}
}
