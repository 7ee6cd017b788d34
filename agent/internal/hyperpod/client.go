package hyperpod

import (
	"fmt"
	"net"
	"sync"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

// client is a connection of a rank, which several objects of a process share.
type client struct {
	conn  net.Conn
	names []string
	// write guards the connection.
	write sync.Mutex
}

// maxNames bounds the objects that share a connection.
const maxNames = 64

// serve talks with a process of a rank until the connection ends.
func (s *Server) serve(conn net.Conn, p *place) {
	c := &client{conn: conn}
	s.mu.Lock()
	p.clients[c] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(p.clients, c)
		s.mu.Unlock()
	}()
	for {
		text, err := ranksocket.ReadFrame(conn)
		var m message
		if err == nil {
			m, err = parse(text)
		}
		if err == nil {
			err = s.take(c, p, m)
		}
		if err != nil {
			s.sockets.Complain(fmt.Sprintf("rank %d", p.Rank.Rank), err)
			return
		}
	}
}

// say writes a message. If the client does not read, say ends the connection.
func (c *client) say(v any) error {
	text, err := frame(v)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	return ranksocket.Say(c.conn, text)
}

// send sends a message to all clients of a rank.
func (p *place) send(m said, complain func(string, error)) {
	for c := range p.clients {
		for _, name := range c.names {
			m.Client = name
			if err := c.say(m); err != nil {
				complain(fmt.Sprintf("rank %d", p.Rank.Rank), err)
				c.conn.Close()
				break
			}
		}
	}
}
