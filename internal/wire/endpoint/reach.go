package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// againAfter is the pause before a node is tried again that cannot be reached.
	againAfter = time.Second
	// patience is how often nodes are asked that do not say where to come, until that is told: they may have the job in a moment.
	patience = 10
)

// Reach waits for the workers of a group at the endpoints of its nodes.
type Reach struct {
	// Find says where endpoints are, by node. The error is why not all nodes say so.
	Find func(context.Context) (map[string]string, error)
	TLS  *tls.Config
	Key  string
	// Bring is given each worker: the way to it and its first frame. It owns the stream, and calls taken when it takes the worker.
	Bring func(ctx context.Context, s *Stream, first []byte, taken func() error)
	// Warn is told of nodes that cannot be reached.
	Warn func(error)

	// missed counts how often nodes have not said where to come.
	missed int
	once   sync.Once
	asked  chan struct{}
	mu     sync.Mutex
	// at has the endpoints that are waited at, and found those that there are, as far as the nodes said when they were asked last.
	at, found map[string]bool
	all       sync.WaitGroup
}

func (r *Reach) begin() {
	r.once.Do(func() { r.asked, r.at = make(chan struct{}, 1), map[string]bool{} })
}

// Ask says that nodes may be new.
func (r *Reach) Ask() {
	r.begin()
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Run goes on until ctx ends, and with it all that it has brought.
func (r *Reach) Run(ctx context.Context) {
	r.begin()
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

// find begins to wait at endpoints that are new.
func (r *Reach) find(ctx context.Context) {
	endpoints, err := r.Find(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		r.missed = 0
	default:
		if r.missed++; r.missed == patience {
			r.Warn(fmt.Errorf("workers of these nodes cannot come yet: %w", err))
		}
		time.AfterFunc(min(againAfter*time.Duration(r.missed), patience*againAfter), r.Ask)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // a node that does not say may have the one that it had
		r.found = nil
	} else {
		r.found = map[string]bool{}
	}
	for _, addr := range endpoints {
		if err == nil {
			r.found[addr] = true
		}
		if !r.at[addr] {
			r.at[addr] = true
			r.all.Go(func() { r.wait(ctx, addr) })
		}
	}
}

// wait takes one worker after another from an endpoint. When its connection there breaks, the node's agent may be another one, at another endpoint.
func (r *Reach) wait(ctx context.Context, addr string) {
	told := false
	for {
		s, first, taken, err := Dial(ctx, addr, r.TLS, r.Key)
		if err == nil {
			told = false
			r.all.Go(func() { r.Bring(ctx, s, first, taken) })
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if !told && !broken(err) {
			r.Warn(err)
			told = true
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
			return
		}
		if r.given(addr) {
			return
		}
		r.Ask()
	}
}

// given says whether an endpoint is given up, for the nodes have said that there is none.
func (r *Reach) given(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil || r.found[addr] {
		return false
	}
	delete(r.at, addr)
	return true
}

// broken says whether an endpoint was there, and it or the network has ended the connection. What TLS says of the other end is something else.
func broken(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && (op.Op == "read" || op.Op == "write") || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
