package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// places bounds the connections of a listener. Connections that have shown a session, or the token
// of the metrics, are guests with places of their own. All others are strangers. When there are too
// many strangers, the oldest is closed for the next.
type places struct {
	net.Listener
	maxStrangers, maxGuests int

	mu        sync.Mutex
	strangers []*placed
	guests    int
}

func (p *places) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	next := &placed{Conn: c, at: p}
	p.mu.Lock()
	p.strangers = append(p.strangers, next)
	var first *placed
	if len(p.strangers) > p.maxStrangers {
		first = p.strangers[0]
	}
	p.mu.Unlock()
	if first != nil {
		_ = first.Close() // the server of the connection closes it again
	}
	return next, nil
}

// placed is a connection that gives up its place when it is closed.
type placed struct {
	net.Conn
	at    *places
	guest bool
}

func (c *placed) Close() error {
	p := c.at
	p.mu.Lock()
	if c.guest {
		c.guest = false
		p.guests--
	} else {
		p.dismiss(c)
	}
	p.mu.Unlock()
	return c.Conn.Close()
}

// dismiss removes a stranger from the list, and reports whether it was there.
func (p *places) dismiss(c *placed) bool {
	i := slices.Index(p.strangers, c)
	if i >= 0 {
		p.strangers = slices.Delete(p.strangers, i, i+1)
	}
	return i >= 0
}

// placeKey is the context key of a request's connection.
type placeKey struct{}

func withPlace(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, c)
}

// welcome makes the connection of a request a guest, if there is a place.
func welcome(r *http.Request) {
	c, ok := r.Context().Value(placeKey{}).(*placed)
	if !ok { // the connection belongs to another server
		return
	}
	p := c.at
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guests < p.maxGuests && p.dismiss(c) {
		c.guest = true
		p.guests++
	}
}
