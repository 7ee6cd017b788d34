package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/golaunch/golaunch/internal/wire/mtls"
)

const (
	// maxHandshakes bounds the TLS handshakes at work, maxOfVoters those of other voters beside them, and patienceForPlace the wait to be one
	// of them.
	maxHandshakes    = 128
	maxOfVoters      = 16
	patienceForPlace = 25 * time.Second
	// maxAudited bounds the machines that an audit remembers.
	maxAudited = 1024
)

// serverCredentials tell the audit who is refused, and why, and work on so many handshakes at a time that each is quick: of a
// thousand at once, all would end late, and many too late. Only a peer that has said a whole TLS hello takes a place. The end of
// over ends them all: nobody waits for a silent peer then. A candidate that does not lead, which is nil where there is none, spares more.
func serverCredentials(over context.Context, config *tls.Config, a *audit, candidate *Candidate) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	c := auditedCredentials{
		over: over, audit: a, candidate: candidate, waiting: new(atomic.Int64),
		places: make(chan struct{}, maxHandshakes), ofVoters: make(chan struct{}, maxOfVoters),
	}
	config = config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, c.enter(hello) }
	c.TransportCredentials = credentials.NewTLS(config)
	return c
}

// errLeft spares a handshake: when more peers come than can be greeted in time, each that gave up and came again would cost one, and soon
// nobody would be greeted in time any more.
var errLeft = errors.New("the peer has not waited for its turn")

// voterProtocol is offered beside HTTP/2 (RFC 7301) by a voter that calls another one, and chosen by none. It is no proof of anything, but lets
// voters go first: thousands of agents that look for a new leader must not keep one from being elected.
const voterProtocol = "golaunch-voter"

// asVoter is the configuration of a voter that calls another one.
func asVoter(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = append(slices.Clone(config.NextProtos), voterProtocol)
	return config
}

type auditedCredentials struct {
	credentials.TransportCredentials
	over      context.Context
	audit     *audit
	candidate *Candidate
	// waiting counts those that wait for a place.
	waiting          *atomic.Int64
	places, ofVoters chan struct{}
}

func (c auditedCredentials) enter(hello *tls.ClientHelloInfo) error {
	conn, voters := hello.Conn.(*watchedConn), (chan struct{})(nil)
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	if slices.Contains(hello.SupportedProtos, voterProtocol) {
		voters = c.ofVoters
	} else if err := c.candidate.await(c.over, c.waiting); err != nil {
		return errors.Join(err, conn.Close()) // without a word, as who has gone
	}
	limit := time.NewTimer(patienceForPlace)
	defer limit.Stop()
	select {
	case c.places <- struct{}{}:
		conn.placed = c.places
	case voters <- struct{}{}:
		conn.placed = voters
	case <-limit.C:
		return errors.New("too many TLS handshakes at once")
	}
	if conn.left() {
		return errLeft
	}
	return conn.SetDeadline(time.Now().Add(patienceForHello))
}

func (c auditedCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer context.AfterFunc(c.over, func() { conn.Close() })()
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if places := conn.(*watchedConn).placed; places != nil {
		<-places
	}
	if err != nil && c.over.Err() == nil && !errors.Is(err, errLeft) && !errors.Is(err, errLedElsewhere) {
		addr := conn.RemoteAddr()
		c.audit.refused(addr, mtls.ExplainServer(err, addr.String()))
	}
	return secure, info, err
}

// audit warns of refused peers: once a minute for each machine, and of so many machines at most.
type audit struct {
	warn func(error)
	mu   sync.Mutex
	told map[string]time.Time
}

func (a *audit) refused(peer net.Addr, why error) {
	host := peer.String()
	if ap, err := netip.ParseAddrPort(host); err == nil {
		host = ap.Addr().String()
	}
	if a.due(host, time.Now()) {
		a.warn(why)
	}
}

func (a *audit) due(host string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.told) >= maxAudited {
		for h, t := range a.told {
			if now.Sub(t) > time.Minute {
				delete(a.told, h)
			}
		}
	}
	last, ok := a.told[host]
	if ok && now.Sub(last) < time.Minute || !ok && len(a.told) >= maxAudited {
		return false
	}
	a.told[host] = now
	return true
}
