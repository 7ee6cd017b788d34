package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxRefusals bounds the machines that Refusals remembers.
const maxRefusals = 1024

// Refusals warns of refused peers, at most once a minute for each machine.
type Refusals struct {
	warn   func(error)
	mu     sync.Mutex
	warned map[string]time.Time
}

func newRefusals(warn func(error)) *Refusals {
	return &Refusals{warn: warn, warned: map[string]time.Time{}}
}

// Agent warns that the agent behind a call was refused.
func (r *Refusals) Agent(ctx context.Context, why error) {
	p, _ := peer.FromContext(ctx)
	r.warnOnce(p.Addr, fmt.Errorf("the agent at %v was refused: %s", p.Addr, status.Convert(why).Message()))
}

func (r *Refusals) warnOnce(peer net.Addr, why error) {
	host := peer.String()
	if ap, err := netip.ParseAddrPort(host); err == nil {
		host = ap.Addr().String()
	}
	if r.due(host, time.Now()) {
		r.warn(why)
	}
}

func (r *Refusals) due(host string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.warned) >= maxRefusals {
		for h, t := range r.warned {
			if now.Sub(t) > time.Minute {
				delete(r.warned, h)
			}
		}
	}
	last, known := r.warned[host]
	if known && now.Sub(last) < time.Minute || !known && len(r.warned) >= maxRefusals {
		return false
	}
	r.warned[host] = now
	return true
}
