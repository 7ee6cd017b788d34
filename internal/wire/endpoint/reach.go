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
	// retryAfter is the pause before an unreachable node is tried again.
	retryAfter = time.Second
	// patience is how often nodes that name no endpoint are asked before there is a warning. Such
	// nodes may be about to get the job.
	patience = 10
)

// Reach waits for the workers of a group at the endpoints of its nodes.
type Reach struct {
	// Find returns the endpoints by node. The error says why some nodes name no endpoint.
	Find func(context.Context) (map[string]string, error)
	TLS  *tls.Config
	Key  string
	// Bring is called for each worker with its stream and its first frame. It owns the stream, and
	// calls taken when it takes the worker.
	Bring func(ctx context.Context, s *Stream, first []byte, taken func() error)
	// Warn gets the nodes that cannot be reached.
	Warn func(error)

	// missed counts how often a node named no endpoint.
	missed int
	once   sync.Once
	asked  chan struct{}
	mu     sync.Mutex
	// at has the endpoints where Reach waits, and found the endpoints that the nodes named last.
	at, found map[string]bool
	all       sync.WaitGroup
}

func (r *Reach) begin() {
	r.once.Do(func() { r.asked, r.at = make(chan struct{}, 1), map[string]bool{} })
}

// Ask says that there may be new nodes.
func (r *Reach) Ask() {
	r.begin()
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Run runs until ctx has ended and all calls of Bring have returned.
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

// find starts to wait at new endpoints.
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
		time.AfterFunc(min(retryAfter*time.Duration(r.missed), patience*retryAfter), r.Ask)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // a node that names no endpoint may still have one
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

// wait takes one worker after another from an endpoint. When a connection breaks, the node may have
// another agent with another endpoint.
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
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return
		}
		if r.isGivenUp(addr) {
			return
		}
		r.Ask()
	}
}

// isGivenUp reports whether the nodes no longer name an endpoint.
func (r *Reach) isGivenUp(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil || r.found[addr] {
		return false
	}
	delete(r.at, addr)
	return true
}

// broken reports whether an endpoint was reached, and the endpoint or the network then ended the
// connection. An error of TLS does not count: it is about the peer.
func broken(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && (op.Op == "read" || op.Op == "write") || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
