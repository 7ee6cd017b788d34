package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Session tickets (RFC 8446 section 2.2) spare a returning peer the signatures and the certificates
// of a handshake. Their keys are derived from the token, so a ticket is good at any coordinator of
// the token. crypto/tls verifies the leaf in a ticket like any other: its expiry, its authority and
// its usage.
//
// A resumed session does not need a hybrid key exchange, because its keys also depend on the secret
// of its ticket. This secret comes from a hybrid exchange, or from an exchange that did not cross a
// network. It is encrypted with a key from the token (RFC 8773 has the same argument). To read a
// recorded session, an attacker needs the token and must break the elliptic curve.

const (
	// ticketPeriod is how long a key encrypts tickets.
	ticketPeriod = 24 * time.Hour
	// ticketAge is the age at which an agent makes a new ticket. The leaf in the ticket is valid
	// for twice as long, because the clocks of agent and coordinator may differ.
	ticketAge = drift / 2
)

// ticketKeys are the keys of a server in a period. The first key encrypts. The others decrypt
// earlier tickets, and tickets of servers whose clocks differ by drift.
func (t Token) ticketKeys(period int64) [][32]byte {
	var keys [][32]byte
	for _, back := range []int64{0, 1, 2, -1} {
		var key [32]byte
		copy(key[:], t.derive(fmt.Sprint("golaunch mtls tickets v2 ", period-back), len(key)))
		keys = append(keys, key)
	}
	return keys
}

// keyring has the keys of the current period.
type keyring struct {
	token Token

	mu     sync.Mutex
	period int64
	config *tls.Config
}

func (k *keyring) now() *tls.Config {
	period := time.Now().UnixNano() / int64(ticketPeriod)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config == nil || k.period != period {
		k.period, k.config = period, new(tls.Config)
		k.config.SetSessionTicketKeys(k.token.ticketKeys(period))
	}
	return k.config
}

// serveTickets makes a coordinator issue and accept tickets.
func serveTickets(config *tls.Config, t Token) {
	keys := &keyring{token: t}
	config.WrapSession = func(cs tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		return keys.now().EncryptTicket(cs, s)
	}
	config.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		return keys.now().DecryptTicket(ticket, cs)
	}
}

// tickets has the newest ticket of a client. It is a [tls.ClientSessionCache] for one server,
// because all coordinators have one name.
type tickets struct {
	token Token

	mu    sync.Mutex
	state *tls.ClientSessionState
	made  time.Time
}

func (s *tickets) Get(string) (*tls.ClientSessionState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.state != nil
}

func (s *tickets) Put(_ string, state *tls.ClientSessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.made = state, time.Now()
}

// fresh reports whether there is a ticket, and makes a new one if the ticket is old.
func (s *tickets) fresh(ctx context.Context, config *tls.Config) bool {
	s.mu.Lock()
	has, old := s.state != nil, time.Since(s.made) > ticketAge
	s.mu.Unlock()
	if has && old {
		if s.token.onlySubmits() || s.mint(ctx, config) != nil {
			s.Put("", nil)
			return false
		}
	}
	return has
}

// mint makes a ticket. Any process with the token may coordinate, so the agent acts as its own
// coordinator in a handshake within its process. Even after days, agents therefore return to a
// coordinator without a full handshake there.
func (s *tickets) mint(ctx context.Context, config *tls.Config) error {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer context.AfterFunc(ctx, func() { ours.Close() })()
	go func() {
		defer theirs.Close()
		server := tls.Server(theirs, Server(s.token, Identity{}))
		if server.Handshake() == nil {
			_, _ = server.Write([]byte{0}) // the client gets an error too
		}
	}()
	s.Put("", nil)
	config = config.Clone()
	config.CurvePreferences = classical
	conn := tls.Client(ours, config)
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the ticket comes before this byte
		return err
	}
	if _, has := s.Get(""); !has {
		return errTicket
	}
	return nil
}

// classical is the key exchange of a resumed session. It costs a third of a hybrid one.
var classical = []tls.CurveID{tls.CurveP256}

var errTicket = errors.New("the coordinator does not know the session ticket")

// Handshake secures an agent's connection. config is from [Client]. An agent that has a ticket
// resumes its session. If the coordinator does not accept the ticket, Handshake fails, and the next
// handshake is a full one.
func Handshake(ctx context.Context, raw net.Conn, config *tls.Config) (*tls.Conn, error) {
	if s, is := config.ClientSessionCache.(*tickets); is && s.fresh(ctx, config) {
		config = config.Clone()
		config.CurvePreferences = classical
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			if !cs.DidResume {
				s.Put("", nil)
				return errTicket
			}
			return nil
		}
	}
	conn := tls.Client(raw, config)
	return conn, conn.HandshakeContext(ctx)
}
