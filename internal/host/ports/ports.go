// Package ports chooses ports that other nodes can reach through a firewall.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// Range is the ports from First to Last, both included. The zero Range means any port.
type Range struct{ First, Last int }

const highest = 65535

// Parse reads "FIRST:LAST". An empty text is the zero Range.
func Parse(text string) (r Range, err error) {
	if text == "" {
		return r, nil
	}
	first, last, two := strings.Cut(text, ":")
	if !two {
		return r, fmt.Errorf("port range %q: FIRST:LAST, such as 30000:30100", text)
	}
	for _, end := range []struct {
		text string
		port *int
	}{{first, &r.First}, {last, &r.Last}} {
		if *end.port, err = strconv.Atoi(end.text); err != nil || *end.port < 1 || *end.port > highest {
			return Range{}, fmt.Errorf("port range %q: %q is no port; FIRST:LAST, each 1 to %d, such as 30000:30100", text, end.text, highest)
		}
	}
	if r.First > r.Last {
		return Range{}, fmt.Errorf("port range %q: it ends before it begins; %d:%d is the range between them", text, r.Last, r.First)
	}
	return r, nil
}

// Any reports whether the range is zero.
func (r Range) Any() bool { return r == Range{} }

// Size is the number of ports; 0 for the zero Range.
func (r Range) Size() int {
	if r.Any() {
		return 0
	}
	return r.Last - r.First + 1
}

func (r Range) String() string {
	if r.Any() {
		return ""
	}
	return fmt.Sprintf("%d:%d", r.First, r.Last)
}

// Or returns this range, or the other range if this one is zero.
func (r Range) Or(other Range) Range {
	if r.Any() {
		return other
	}
	return r
}

// Within is the intersection of two ranges.
func (r Range) Within(other Range) (Range, error) {
	if r.Any() || other.Any() {
		return r.Or(other), nil
	}
	both := Range{max(r.First, other.First), min(r.Last, other.Last)}
	if both.First > both.Last {
		return Range{}, fmt.Errorf("no port is both in %v and in %v", r, other)
	}
	return both, nil
}

// Listen takes a free port of the range, or any port for the zero Range. An empty host means all
// addresses. It takes the first port last, because clients look for a coordinator there.
func (r Range) Listen(ctx context.Context, host string) (net.Listener, error) {
	var lc net.ListenConfig
	if r.Any() {
		return lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	others := r.Size() - 1
	start := rand.IntN(max(1, others)) // concurrent listeners try different ports
	for i := range r.Size() {
		port := r.First
		if i < others {
			port += 1 + (start+i)%others
		}
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("cannot listen on a port of %v: %w", r, err)
		}
	}
	if host == "" {
		host = "this node"
	}
	return nil, &BusyError{Range: r, Host: host}
}

// BusyError means that every port of a range is taken at a host.
type BusyError struct {
	Range Range
	Host  string
}

func (e *BusyError) Error() string {
	if e.Range.Size() == 1 {
		return fmt.Sprintf("the only port of %v (--port-range) is in use at %s; give a wider range", e.Range, e.Host)
	}
	return fmt.Sprintf("all %d ports of %v (--port-range) are in use at %s; give a wider range, or end what has them (ss -ltnp shows it)",
		e.Range.Size(), e.Range, e.Host)
}
