package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/golaunch/golaunch/internal/wire/mtls"
)

const (
	// MaxHandshakes bounds concurrent TLS handshakes. maxVoterHandshakes bounds the additional
	// handshakes of other voters. slotTimeout bounds the wait for a slot.
	MaxHandshakes      = 128
	maxVoterHandshakes = 16
	slotTimeout        = 25 * time.Second
)

// HoldFunc delays a client that has sent its TLS hello until the handshake is worth its cost.
// waiting counts the clients that wait. After an error the server closes the connection without a
// message.
type HoldFunc func(ctx context.Context, waiting *atomic.Int64) error

// handshakes limits concurrent TLS handshakes, so that each is quick. If a thousand ran at once,
// all would end late, and many only after the peer has given up. Only a peer that has sent a whole
// TLS hello takes a slot.
type handshakes struct {
	credentials.TransportCredentials
	// over ends all handshakes.
	over     context.Context
	refusals *Refusals
	hold     HoldFunc
	// waiting counts the peers that wait for a slot.
	waiting           *atomic.Int64
	slots, voterSlots chan struct{}
}

// transportCredentials returns the credentials of config with a limit on handshakes. Without TLS
// there are no handshakes. hold may be nil.
func transportCredentials(over context.Context, config *tls.Config, r *Refusals, hold HoldFunc) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	h := handshakes{
		over: over, refusals: r, hold: hold, waiting: new(atomic.Int64),
		slots: make(chan struct{}, MaxHandshakes), voterSlots: make(chan struct{}, maxVoterHandshakes),
	}
	config = config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, h.enter(hello) }
	h.TransportCredentials = credentials.NewTLS(config)
	return h
}

// errAbandoned ends a connection before the handshake, to save its cost. When a crowd of
// peers waits for too long, some peers give up. If the server still made their handshakes, the
// other peers would wait until they also give up.
var errAbandoned = errors.New("the peer has given up waiting for its handshake")

// errHeld ends a connection before the handshake, because another process can serve the client
// better.
var errHeld = errors.New("the client was not admitted to a handshake")

// voterProtocol is a protocol (RFC 7301) that a voter offers beside HTTP/2 when it calls another
// voter. The server never selects it. It proves nothing, but reserves slots for voters, because
// thousands of agents that look for a new leader must not delay its election.
const voterProtocol = "golaunch-voter"

// VoterTLS returns the configuration of a voter that calls another voter.
func VoterTLS(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = append(slices.Clone(config.NextProtos), voterProtocol)
	return config
}

func (h handshakes) enter(hello *tls.ClientHelloInfo) error {
	conn, voters := hello.Conn.(*Conn), (chan struct{})(nil)
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	if slices.Contains(hello.SupportedProtos, voterProtocol) {
		voters = h.voterSlots
	} else if h.hold != nil {
		if err := h.hold(h.over, h.waiting); err != nil {
			return errors.Join(errHeld, err, conn.Close())
		}
	}
	limit := time.NewTimer(slotTimeout)
	defer limit.Stop()
	select {
	case h.slots <- struct{}{}:
		conn.slot = h.slots
	case voters <- struct{}{}:
		conn.slot = voters
	case <-limit.C:
		return errors.New("too many TLS handshakes at once")
	}
	if conn.abandoned() {
		return errAbandoned
	}
	return conn.SetDeadline(time.Now().Add(HelloTimeout))
}

func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer context.AfterFunc(h.over, func() { conn.Close() })()
	conn.(*Conn).records = new(records)
	secure, info, err := h.TransportCredentials.ServerHandshake(conn)
	if slot := conn.(*Conn).slot; slot != nil {
		<-slot
	}
	if err != nil && h.over.Err() == nil && !errors.Is(err, errAbandoned) && !errors.Is(err, errHeld) {
		addr := conn.RemoteAddr()
		h.refusals.warnOnce(addr, mtls.ExplainServer(err, addr.String()))
	}
	return secure, info, err
}
