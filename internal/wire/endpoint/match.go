package endpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// The first frame of a worker has the form in python/golaunch/wire.py.
const (
	headerSize = 24
	hello      = 1
	maxHello   = 64 << 10
)

// worker is the connection of a worker that has identified itself.
type worker struct {
	conn  *net.UnixConn
	inner net.Conn
	first []byte
}

func (e *Endpoint) helloWorker(conn net.Conn) {
	f := conn.(unknownConn)
	u, ok := f.Conn.(*net.UnixConn)
	if !ok || !e.isJobUser(u) {
		e.drop(f.Conn)
		return
	}
	first, key, err := readHello(u)
	if err != nil {
		e.drop(f.Conn)
		return
	}
	_ = u.SetDeadline(time.Time{})
	f.known()
	e.match(key, &worker{u, f.Conn, first}, nil)
}

var errHello = errors.New("not the greeting of a worker")

// readHello reads the first frame, and not a byte more.
func readHello(conn io.Reader) (frame []byte, key string, err error) {
	frame = make([]byte, headerSize)
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, "", err
	}
	size := binary.LittleEndian.Uint64(frame[16:])
	if frame[0] != hello || frame[1] != 1 || binary.LittleEndian.Uint16(frame[2:]) != 0 || binary.LittleEndian.Uint32(frame[4:]) != 0 || size > maxHello {
		return nil, "", errHello
	}
	frame = append(frame, make([]byte, size)...)
	if _, err := io.ReadFull(conn, frame[headerSize:]); err != nil {
		return nil, "", err
	}
	var facts struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(frame[headerSize:], &facts); err != nil || len(facts.Key) != KeySize {
		return nil, "", errHello
	}
	return frame, facts.Key, nil
}

func (e *Endpoint) helloController(conn net.Conn) {
	inner := innermost(conn)
	key := make([]byte, KeySize)
	if _, err := io.ReadFull(conn, key); err != nil { // this read includes the handshake
		e.drop(inner.Conn)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	inner.known()
	e.match(string(key), nil, conn)
}

// innermost returns the connection below TLS.
func innermost(conn net.Conn) unknownConn {
	return conn.(interface{ NetConn() net.Conn }).NetConn().(unknownConn)
}

// waiter is a worker or a controller's connection, with its key.
type waiter struct {
	key        string
	worker     *worker
	controller net.Conn
}

// match joins a worker and a controller with the same key when both are there.
func (e *Endpoint) match(key string, w *worker, c net.Conn) {
	e.mu.Lock()
	mine, theirs, most := &e.waiting.workers, &e.waiting.controllers, maxWorkers
	if w == nil {
		mine, theirs, most = theirs, mine, maxControllers
	}
	var late waiter
	i := slices.IndexFunc(*theirs, func(other waiter) bool { return other.key == key })
	switch {
	case e.closed: // all connections are closed
	case i >= 0:
		other := (*theirs)[i]
		*theirs = slices.Delete(*theirs, i, i+1)
		if w == nil {
			w = other.worker
		} else {
			c = other.controller
		}
		e.all.Go(func() { e.join(key, w, c) })
	default:
		if *mine = append(*mine, waiter{key, w, c}); len(*mine) > most {
			late, *mine = (*mine)[0], (*mine)[1:]
		}
	}
	e.mu.Unlock()
	e.end(late.worker, late.controller)
}

func (e *Endpoint) end(w *worker, c net.Conn) {
	if w != nil {
		e.drop(w.inner)
	}
	if c != nil {
		e.drop(innermost(c).Conn)
	}
}

// join gives a worker to a controller. If the controller is gone, the worker waits for the next
// one.
func (e *Endpoint) join(key string, w *worker, c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	_, err := c.Write(w.first)
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	_ = c.SetDeadline(time.Time{})
	if err != nil {
		e.end(nil, c)
		e.match(key, w, nil)
		return
	}
	e.deliver(key, w.conn, c)
	e.end(w, c)
}
