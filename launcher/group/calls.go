package group

import (
	"context"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Answer is a worker's answer to a call, or the error why there is no answer.
type Answer struct {
	Rank int
	Out  []byte
	Err  error
}

// Call calls a worker by its rank, and waits for the answer. The input and the answer have at most
// 4 GiB each, and the name of a method at most 256 bytes. If a call fails, for instance because ctx
// ends, its worker may still read the input: do not change the input before the worker has answered
// a later call, or has ended. The same holds for CallAll, and for a CallEach whose loop ends early.
func (g *Group) Call(ctx context.Context, rank int, method string, in []byte) ([]byte, error) {
	return g.call(ctx, rank, 0, method, in)
}

// call calls a worker. Calls with the same number shared have the same input, which a node gets
// only once. A call with shared 0 has an input of its own.
func (g *Group) call(ctx context.Context, rank int, shared uint64, method string, in []byte) ([]byte, error) {
	if rank < 0 || rank >= g.size {
		return nil, usage.Errorf("worker %d: the group has 0 to %d", rank, g.size-1)
	}
	if len(method) > rpcframe.MaxName || len(in) > rpcframe.MaxBody {
		return nil, usage.Errorf("a method's name of %d bytes and an input of %d: %d and %d at most", len(method), len(in), rpcframe.MaxName, rpcframe.MaxBody)
	}
	l, err := g.ready(ctx, rank)
	if err != nil {
		return nil, err
	}
	return l.call(ctx, g.number(), shared, method, in)
}

// number returns a number that no other call of the group has.
func (g *Group) number() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	return g.next
}

// CallAll calls all workers with the same input, which crosses the network once for each node. It
// returns their answers by rank, or the first error.
func (g *Group) CallAll(ctx context.Context, method string, in []byte) ([][]byte, error) {
	out := make([][]byte, g.size)
	all, ctx := errgroup.WithContext(ctx)
	shared := g.number()
	for rank := range g.size {
		all.Go(func() (err error) {
			out[rank], err = g.call(ctx, rank, shared, method, in)
			return err
		})
	}
	return out, all.Wait()
}

// CallEach calls all workers, each with its own input, and yields their answers as they arrive.
// Ending the loop cancels the calls that have no answer yet.
func (g *Group) CallEach(ctx context.Context, method string, in [][]byte) iter.Seq[Answer] {
	return func(yield func(Answer) bool) {
		if len(in) != g.size {
			yield(Answer{Rank: -1, Err: usage.Errorf("%d inputs for %d workers: one for each", len(in), g.size)})
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan Answer, g.size)
		for rank := range g.size {
			go func() {
				out, err := g.Call(ctx, rank, method, in[rank])
				answers <- Answer{rank, out, err}
			}()
		}
		for range g.size {
			if !yield(<-answers) {
				return
			}
		}
	}
}

// ready waits until a worker is connected, even if the worker restarts during the wait. An exited
// worker does not connect again.
func (g *Group) ready(ctx context.Context, rank int) (*link, error) {
	for {
		g.mu.Lock()
		l, exited, over, changed := g.workers[rank].link, g.workers[rank].exited, g.over, g.changed
		g.mu.Unlock()
		switch {
		case over != nil:
			return nil, whyOver(over)
		case exited != nil:
			return nil, exited.err()
		case l != nil:
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, g.waitError(rank, context.Cause(ctx))
		case <-g.ctx.Done():
			return nil, g.waitError(rank, context.Cause(g.ctx))
		}
	}
}

// waitError says why the wait for a worker has ended, and what kept workers from connecting.
func (g *Group) waitError(rank int, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble != nil {
		return fmt.Errorf("wait for worker %d: %w; %w", rank, why, g.trouble)
	}
	return fmt.Errorf("wait for worker %d: %w", rank, why)
}
