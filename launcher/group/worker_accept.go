package group

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
	endpoints "github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// acceptAgain is the pause after a failed accept, for instance when descriptors are scarce.
const acceptAgain = 100 * time.Millisecond

// accept accepts connections from workers of this machine, and serves each.
func (g *Group) accept() {
	stop := context.AfterFunc(g.ctx, func() { _ = g.socket.Close() })
	defer stop()
	for {
		conn, err := g.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			g.noteTrouble(fmt.Errorf("cannot accept workers of this machine at the moment: %w", err))
			select {
			case <-time.After(acceptAgain): // there is no event when a descriptor becomes free
			case <-g.ctx.Done():
			}
			continue
		}
		if !sameUser(conn) {
			_ = conn.Close()
			continue
		}
		g.all.Go(func() { g.serve(conn, bufio.NewReaderSize(conn, 64<<10), func() error { return nil }) })
	}
}

func sameUser(conn *net.UnixConn) bool {
	peer, err := safefile.Peer(conn)
	return err == nil && int(peer.Uid) == os.Geteuid()
}

// serveRemote serves a worker of another machine.
func (g *Group) serveRemote(_ context.Context, conn *endpoints.Stream, first []byte, taken func() error) {
	g.serve(conn, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), conn), 64<<10), taken)
}

// serve serves one connection of a worker.
func (g *Group) serve(conn net.Conn, in *bufio.Reader, taken func() error) {
	defer conn.Close()
	stop := context.AfterFunc(g.ctx, func() { conn.Close() })
	defer stop()
	who, err := g.readGreeting(conn, in)
	if err != nil || taken() != nil {
		return
	}
	l, last := g.resume(conn, who)
	if last != nil {
		if rpcframe.Write(conn, *last) == nil {
			_, _ = io.Copy(io.Discard, in) // until the worker has ended: a close with unread input could lose the frame last
		}
		return
	}
	if l == nil {
		if l, err = g.newLink(conn, in, who); err != nil {
			return
		}
	}
	if err := l.read(conn, in); err != nil { // a malformed frame ends the reading
		l.fail(nil)
	}
	ended := false
	g.change(func() {
		w := &g.workers[who.Rank]
		if ended = l.disconnect(conn); ended && w.link == l {
			w.link = nil
			if !g.closing {
				w.lost = l
			}
		}
	})
	if !ended {
		return
	}
	select {
	case g.disconnected <- struct{}{}:
	default: // findExited has not received the previous value yet, and one value is enough
	}
	g.awaitVerdict(l, who.Attempt)
}

// readGreeting reads a worker's greeting, which says who the worker is.
func (g *Group) readGreeting(conn net.Conn, in *bufio.Reader) (who rpcframe.Greeting, err error) {
	limit := timeout(conn)
	defer limit()
	f, err := rpcframe.Read(in, rpcframe.MaxHello)
	if err == nil {
		err = json.Unmarshal(f.Body, &who)
	}
	if err != nil || f.Kind != rpcframe.Hello || !sameKey(who.Key, g.key) || who.Job != g.ID || who.Rank < 0 || who.Rank >= g.size {
		return who, errors.Join(err, rpcframe.ErrFrame)
	}
	return who, nil
}

// resume returns the link of a worker that connects again, or nil for a new worker. For a worker
// that must end, it returns the frame to send, and no link.
func (g *Group) resume(conn net.Conn, who rpcframe.Greeting) (l *link, last *rpcframe.Frame) {
	g.change(func() {
		w := &g.workers[who.Rank]
		switch {
		case g.closing:
			last = &rpcframe.Frame{Kind: rpcframe.Bye}
		case w.attempt == who.Attempt && cmp.Or(w.link, w.lost) != nil:
			l = cmp.Or(w.link, w.lost)
			if err := l.resume(conn, who.Received); err != nil {
				l, last = nil, &rpcframe.Frame{Kind: rpcframe.Error, Codec: rpcframe.Raw, Body: []byte(err.Error())}
				return
			}
			w.link, w.lost = l, nil
		}
	})
	return l, last
}

// newLink makes a link to a worker that connects for the first time, or whose first connection
// broke before newLink had made a link.
func (g *Group) newLink(conn net.Conn, in *bufio.Reader, who rpcframe.Greeting) (*link, error) {
	l := &link{
		newest: conn, conn: conn, rank: who.Rank, node: who.Node, pending: map[uint64]chan rpcframe.Frame{},
		gone: make(chan struct{}), slots: make(chan struct{}, rpcframe.MaxOutstanding), writing: make(chan struct{}, 1),
	}
	var err error
	if l.methods, err = l.prepare(in, who.Received); err != nil {
		return nil, err
	}
	fresh := false
	g.change(func() {
		if w := &g.workers[who.Rank]; who.Attempt >= max(w.attempt, w.minAttempt) && g.over == nil {
			*w, fresh = worker{link: l, attempt: who.Attempt, minAttempt: w.minAttempt, node: who.Node, gpu: who.GPU, local: who.LocalRank}, true
		}
		if fresh && g.closing {
			l.bye()
		}
	})
	if !fresh { // a worker of an attempt that is over, which is about to be stopped
		return nil, rpcframe.ErrFrame
	}
	return l, nil
}

// prepare makes a worker ready, and returns the handlers of turns that it has.
func (l *link) prepare(in *bufio.Reader, received *uint64) (methods []string, err error) {
	limit := timeout(l.conn)
	defer limit()
	if received != nil {
		l.replay = rpcframe.Resumed[sentFrame](*received)
		err = rpcframe.Write(l.conn, l.replay.Ack())
	}
	if err == nil && (received == nil || *received == 0) {
		var making []byte
		if making, err = json.Marshal(rpcframe.Making{Turns: []string{offload, onload}}); err == nil {
			err = l.write(context.Background(), rpcframe.Frame{Kind: rpcframe.Make, Codec: rpcframe.JSON, Body: making}, 0)
		}
	}
	for err == nil {
		var f rpcframe.Frame
		if f, err = rpcframe.Read(in, rpcframe.MaxHello); err != nil {
			break
		}
		switch {
		case f.Kind == rpcframe.Ack && l.replay != nil:
			err = l.replay.Acknowledge(f.Call)
			continue
		case f.Kind != rpcframe.Ready:
			return nil, rpcframe.ErrFrame
		case l.replay != nil:
			l.replay.Take(f)
		}
		if len(f.Body) > 0 { // a worker of golaunch 0.9 does not list its handlers
			err = json.Unmarshal(f.Body, &methods)
		}
		return methods, err
	}
	return nil, err
}
