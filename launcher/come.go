package launcher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/golaunch/golaunch/internal/calls"
	endpoints "github.com/golaunch/golaunch/internal/endpoint"
	"github.com/golaunch/golaunch/internal/own"
)

// How the workers of a group come

// acceptAgain is the pause after which workers are let in again when there was no descriptor for one.
const acceptAgain = 100 * time.Millisecond

// accept takes workers of this machine.
func (g *Group) accept() {
	stop := context.AfterFunc(g.ctx, func() { _ = g.socket.Close() })
	defer stop()
	for {
		conn, err := g.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			g.troubled(fmt.Errorf("no worker of this machine can come at the moment: %w", err))
			select {
			case <-time.After(acceptAgain): // no event tells that a descriptor is free
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
	peer, err := own.Peer(conn)
	return err == nil && int(peer.Uid) == os.Geteuid()
}

// bring is a worker of another machine.
func (g *Group) bring(_ context.Context, conn *endpoints.Stream, first []byte, taken func() error) {
	g.serve(conn, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), conn), 64<<10), taken)
}

// serve is the life of a connection of a worker.
func (g *Group) serve(conn net.Conn, in *bufio.Reader, taken func() error) {
	defer conn.Close()
	stop := context.AfterFunc(g.ctx, func() { conn.Close() })
	defer stop()
	who, methods, err := g.greeted(conn, in, taken)
	if err != nil {
		return
	}
	l := &link{
		conn: conn, rank: who.Rank, node: who.Node, methods: methods, waits: map[uint64]chan calls.Frame{},
		gone: make(chan struct{}), slots: make(chan struct{}, calls.MaxOutstanding), writing: make(chan struct{}, 1),
	}
	fresh := false
	g.change(func() {
		if w := &g.workers[who.Rank]; who.Attempt >= max(w.attempt, w.from) && g.over == nil {
			if w.unclear != nil && w.attempt == who.Attempt { // it lives: golaunch will say nothing of it
				w.unclear.fail(nil)
			}
			*w, fresh = caller{link: l, attempt: who.Attempt, from: w.from, node: who.Node, gpu: who.GPU, local: who.LocalRank}, true
		}
		if fresh && g.closing {
			l.bye()
		}
	})
	if !fresh {
		return
	}
	l.read(in)
	g.change(func() {
		if w := &g.workers[who.Rank]; w.link == l {
			w.link = nil
			if !g.closing {
				w.unclear = l
			}
		}
	})
	select {
	case g.lost <- struct{}{}:
	default: // it is not heard yet that another one has ended
	}
	g.explain(l, who.Attempt)
}

func (g *Group) greeted(conn net.Conn, in *bufio.Reader, taken func() error) (who calls.Greeting, methods []string, err error) {
	limit := timeout(conn)
	defer limit()
	f, err := calls.Read(in, calls.MaxHello)
	if err == nil {
		err = json.Unmarshal(f.Body, &who)
	}
	if err != nil || f.Kind != calls.Hello || !sameKey(who.Key, g.key) || who.Job != g.ID || who.Rank < 0 || who.Rank >= g.size {
		return who, nil, errors.Join(err, calls.ErrFrame)
	}
	if err := taken(); err != nil {
		return who, nil, err
	}
	making, err := json.Marshal(calls.Making{Turns: []string{offload, onload}})
	if err == nil {
		err = calls.Write(conn, calls.Frame{Kind: calls.Make, Codec: calls.JSON, Body: making})
	}
	if err != nil {
		return who, nil, err
	}
	f, err = calls.Read(in, calls.MaxHello)
	if err == nil && f.Kind != calls.Ready {
		err = calls.ErrFrame
	}
	if err == nil && len(f.Body) > 0 { // a worker of golaunch 0.9 does not say what it has
		err = json.Unmarshal(f.Body, &methods)
	}
	return who, methods, err
}
