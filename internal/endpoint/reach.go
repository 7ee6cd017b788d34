package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	at     map[string]bool
	all    sync.WaitGroup
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
	for _, addr := range endpoints {
		if !r.at[addr] {
			r.at[addr] = true
			r.all.Go(func() { r.wait(ctx, addr) })
		}
	}
}

// wait takes one worker after another from an endpoint.
func (r *Reach) wait(ctx context.Context, addr string) {
	defer func() {
		r.mu.Lock()
		delete(r.at, addr)
		r.mu.Unlock()
	}()
	told := false
	for ctx.Err() == nil {
		s, first, taken, err := Dial(ctx, addr, r.TLS, r.Key)
		if err == nil {
			told = false
			r.all.Go(func() { r.Bring(ctx, s, first, taken) })
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			return // the job is over there
		}
		if !told {
			r.Warn(err)
			told = true
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
		}
	}
}
