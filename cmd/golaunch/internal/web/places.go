package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// places bounds the connections of a listener. Whoever has shown a session, or the token of the
// metrics, is a guest. Guests have places of their own: all others are strangers, and where there
// are too many of them the first to come goes for the next.
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
		_ = first.Close() // whoever serves it closes it again
	}
	return next, nil
}

// placed is a connection that leaves its place when it is closed.
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

// dismiss takes a stranger off the list, and reports whether he was on it.
func (p *places) dismiss(c *placed) bool {
	i := slices.Index(p.strangers, c)
	if i >= 0 {
		p.strangers = slices.Delete(p.strangers, i, i+1)
	}
	return i >= 0
}

// placeKey is that of a request's connection in its context.
type placeKey struct{}

func withPlace(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, c)
}

// welcome makes a guest of the connection of a request, if there is a place.
func welcome(r *http.Request) {
	c, ok := r.Context().Value(placeKey{}).(*placed)
	if !ok { // it came through another server
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
