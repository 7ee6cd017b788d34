package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/door"
)

const (
	// askLimit bounds the wait for nodes that are asked where their workers are, and againAfter is the pause before a node is tried again that
	// cannot be reached.
	askLimit   = 10 * time.Second
	againAfter = time.Second
)

// reach brings the workers of a group that cannot come to the program's socket by themselves: it waits for them at the doors of their nodes.
type reach struct {
	c   *controller
	job string
	// socket is the program's, and key shows it that a worker is its own.
	socket, key string
	tls         *tls.Config
	// asked is sent to when nodes may be new.
	asked chan struct{}

	mu sync.Mutex
	// at is by address; the function ends the wait there.
	at  map[string]context.CancelFunc
	all sync.WaitGroup
}

func newReach(c *controller, s starting) *reach {
	return &reach{c: c, job: s.ID, socket: s.Socket, key: s.Key, tls: c.tls, asked: make(chan struct{}, 1), at: map[string]context.CancelFunc{}}
}

// ask says that nodes may be new.
func (r *reach) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// run goes on until ctx ends.
func (r *reach) run(ctx context.Context) {
	defer r.all.Wait()
	for {
		select {
		case <-r.asked:
			r.find(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// find begins to wait at doors that are new, and leaves those that are no more.
func (r *reach) find(ctx context.Context) {
	client, err := r.c.cluster()
	if err != nil {
		return
	}
	doors, err := client.Doors(ctx, r.job, askLimit)
	if err != nil {
		return // the job is not there, or the coordinator is gone: both are told by others
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, addr := range doors {
		if r.at[addr] == nil {
			waiting, end := context.WithCancel(ctx)
			r.at[addr] = end
			r.all.Go(func() { r.wait(waiting, addr) })
		}
	}
}

// wait takes one worker after another from a door.
func (r *reach) wait(ctx context.Context, addr string) {
	defer func() {
		r.mu.Lock()
		delete(r.at, addr)
		r.mu.Unlock()
	}()
	told := false
	for ctx.Err() == nil {
		conn, first, taken, err := door.Knock(ctx, addr, r.tls, r.key)
		if err == nil {
			told = false
			r.all.Go(func() { r.bring(ctx, conn, first, taken) })
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			return // the job is over there
		}
		if !told {
			r.c.tell(warning{"warning", err.Error()})
			told = true
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
		}
	}
}

// bring connects a worker with the program.
func (r *reach) bring(ctx context.Context, conn net.Conn, first []byte, taken func() error) {
	defer conn.Close()
	program, err := (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return
	}
	defer program.Close()
	if _, err := program.Write(first); err != nil {
		return
	}
	if taken() != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		program.Close()
	})
	defer stop()
	door.Relay(program, conn)
}
