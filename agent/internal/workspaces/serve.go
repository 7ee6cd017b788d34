package workspaces

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/report"
)

// A node asks another node for a workspace with its ID, over mutual TLS. The answer is the size of
// the archive in 8 bytes, big-endian, and then the archive.
const (
	protocol = "golaunch-workspace/1"
	idSize   = 64
)

const (
	// helloLimit bounds the handshake and the request. silence is how long the transfer of an
	// archive may make no progress.
	helloLimit = 10 * time.Second
	silence    = 30 * time.Second
	// maxConns bounds the nodes that are served at a time. The coordinator refers fewer nodes to
	// this one.
	maxConns = 16
)

// forWorkspaces returns the TLS configuration for this protocol. The handshake fails at the port of
// a coordinator or a controller, which serves no workspaces.
func forWorkspaces(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// address returns where other nodes get workspaces from this node. It is empty if they cannot.
func (s *Store) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Server == nil || s.unserved {
		return ""
	}
	if s.listener == nil {
		l, err := s.within.Listen(context.Background(), s.Addr.String())
		if err != nil {
			s.unserved = true
			s.Warn(fmt.Errorf("other nodes cannot get workspaces from this one: %w", err))
			return ""
		}
		s.listener = l
		s.serving.Go(func() { s.serve(l) })
	}
	return s.listener.Addr().String()
}

// Close ends the service to other nodes, once no job uses a workspace any more.
func (s *Store) Close() {
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close()
	}
	s.unserved = true
	s.mu.Unlock()
	s.end()
	s.serving.Wait()
}

func (s *Store) serve(l net.Listener) {
	config := forWorkspaces(s.Server)
	room := make(chan struct{}, maxConns)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no event announces a free descriptor
			time.Sleep(acceptPause)
			continue
		}
		select {
		case room <- struct{}{}:
			s.serving.Go(func() {
				defer func() { <-room }()
				defer conn.Close()
				defer context.AfterFunc(s.closing, func() { conn.Close() })()
				_ = s.answer(tls.Server(conn, config), conn) // the other node reports what failed
			})
		default:
			conn.Close()
		}
	}
}

// acceptPause is the wait after a failure to accept a connection.
const acceptPause = 100 * time.Millisecond

// answer sends one archive.
func (s *Store) answer(conn *tls.Conn, raw net.Conn) error {
	_ = raw.SetDeadline(time.Now().Add(helloLimit))
	if err := conn.Handshake(); err != nil {
		return err
	}
	if id, err := mtls.Peer(conn.ConnectionState()); err != nil || id.Submits {
		return errors.Join(err, mtls.ErrSubmitToken)
	}
	id := make([]byte, idSize)
	if _, err := io.ReadFull(conn, id); err != nil {
		return err
	}
	it := s.find(string(id))
	if it == nil {
		return errors.New("it is not here")
	}
	defer s.release(it)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(it.archive.Bytes))); err != nil {
		return err
	}
	piece := make([]byte, wire.MaxPiece)
	for in := it.archive.Reader(); ; {
		n, err := in.Read(piece)
		if n > 0 {
			_ = raw.SetDeadline(time.Now().Add(silence))
			if _, err := conn.Write(piece[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return conn.Close()
		}
		if err != nil {
			return err
		}
	}
}

// find begins to use a workspace that is on this node. It returns nil if the workspace is not here.
func (s *Store) find(id string) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	if it == nil {
		return nil
	}
	select {
	case <-it.ready:
	default:
		return nil
	}
	it.users++
	return it
}

// fetch gets an archive from the node at HOST:PORT.
func fetch(ctx context.Context, addr string, config *tls.Config, w report.Workspace, write func([]byte) error) error {
	if config == nil {
		return errors.New("this node has no TLS for other nodes")
	}
	raw, err := (&net.Dialer{Timeout: helloLimit}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn := tls.Client(raw, forWorkspaces(config))
	_ = raw.SetDeadline(time.Now().Add(helloLimit))
	if _, err := io.WriteString(conn, w.ID); err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	var size [8]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	if n := binary.BigEndian.Uint64(size[:]); n != uint64(w.Bytes) {
		return fmt.Errorf("%s has it with %d bytes instead of %d", addr, n, w.Bytes)
	}
	piece := make([]byte, wire.MaxPiece)
	for left := w.Bytes; left > 0; {
		_ = raw.SetDeadline(time.Now().Add(silence))
		n, err := conn.Read(piece[:min(left, int64(len(piece)))])
		if n > 0 {
			if err := write(piece[:n]); err != nil {
				return err
			}
			left -= int64(n)
		}
		if err != nil && left > 0 {
			return fmt.Errorf("from %s: %w", addr, err)
		}
	}
	return nil
}
