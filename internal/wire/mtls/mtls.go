// Package mtls turns one shared token into mutual TLS 1.3, without certificates to distribute.
//
// Both ends derive the same certificate authority from the token. Each end signs its own leaf with
// this authority, and makes a new leaf every ten minutes, so a job that runs for weeks can
// reconnect. A leaf is good for a coordinator (server authentication) or for an agent (client
// authentication), never for both. It names its node and job, but does not prove them, because the
// token can sign any leaf.
//
// A peer of one coordinator can resume its TLS session at any coordinator with the same token. This
// spares both ends at least half of the cost of a handshake, which matters when all agents of a
// cluster reconnect at once.
package mtls

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"time"
)

// role is the DNS name in every coordinator's leaf instead of a host name: agents reach a
// coordinator by many names.
const role = "coordinator"

// drift is how far the clocks of two machines may differ.
const drift = 24 * time.Hour

// Identity is what a leaf says about its owner. Node and Job may be empty.
type Identity struct {
	Node, Job string
	// Submits says that the peer has a submit token. [Peer] sets it; a leaf cannot claim it.
	Submits bool
}

// Server returns the configuration of a coordinator. It refuses a peer that has another token, or
// whose leaf is not an agent's or a client's. It accepts the submit token that belongs to t; the
// caller decides what a submitter may do. If t itself is a submit token, Server fails.
func Server(t Token, id Identity) *tls.Config {
	ca := machines(t)
	known := ca.pool()
	known.AddCert(submitters(t).cert)
	own := leaf{ca: ca, id: id, usage: x509.ExtKeyUsageServerAuth, names: []string{role}}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"h2"},
		ClientAuth:     tls.RequireAndVerifyClientCert,
		ClientCAs:      known,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
	}
	serveTickets(config, t)
	return config
}

// Client returns the configuration of an agent or client. It refuses a peer that has another token,
// or whose leaf is not a coordinator's.
func Client(t Token, id Identity) *tls.Config {
	coordinators := machines(t)
	ca := coordinators
	if t.onlySubmits() {
		ca = submitters(t)
	}
	own := leaf{ca: ca, id: id, usage: x509.ExtKeyUsageClientAuth}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		NextProtos:           []string{"h2"},
		RootCAs:              coordinators.pool(),
		ServerName:           role,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
		ClientSessionCache:   &tickets{token: t},
	}
}

// Peer returns the identity of the peer after a handshake.
func Peer(s tls.ConnectionState) (Identity, error) {
	if len(s.VerifiedChains) == 0 || len(s.PeerCertificates[0].URIs) != 1 {
		return Identity{}, errors.New("the peer's certificate names no node")
	}
	q := s.PeerCertificates[0].URIs[0].Query()
	chain := s.VerifiedChains[0]
	by := chain[len(chain)-1].Subject.CommonName // the authority is a known one
	return Identity{Node: q.Get("node"), Job: q.Get("job"), Submits: strings.HasPrefix(by, submitName)}, nil
}

// authority is a certificate authority of a token: the same key, name and certificate on every
// machine.
type authority struct {
	cert *x509.Certificate
	// key is nil where the token must not sign.
	key ed25519.PrivateKey
}

// machines returns the authority of coordinators and agents. A submit token can only verify what
// this authority has signed.
func machines(t Token) authority {
	s := t.submitter()
	public := ed25519.PublicKey(s.coordinator[:])
	if !t.onlySubmits() {
		return newAuthority(machineName+t.ID(), public, t.key(), t.key())
	}
	// The signature of a root is not verified (RFC 5280 section 6.1), so any key can make it.
	return newAuthority(machineName+t.ID(), public, nil, ed25519.NewKeyFromSeed(s.seed[:]))
}

// submitters returns the authority of submit tokens.
func submitters(t Token) authority {
	s := t.submitter()
	key := ed25519.NewKeyFromSeed(s.seed[:])
	return newAuthority(submitName+t.ID(), key.Public().(ed25519.PublicKey), key, key)
}

// newAuthority returns the authority of a public key; signer signs its certificate.
func newAuthority(name string, public ed25519.PublicKey, key, signer ed25519.PrivateKey) authority {
	sum := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Unix(0, 0),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // it does not expire (RFC 5280 section 4.1.2.5)
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          sum[:20],
	}
	cert, err := sign(template, template, public, signer)
	if err != nil {
		panic(err) // a constant template that x509 accepts
	}
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// leaf is a key with its certificate. It is reused because making one costs a fifth of a handshake,
// and a coordinator greets thousands of agents at once.
type leaf struct {
	ca    authority
	id    Identity
	usage x509.ExtKeyUsage
	names []string

	mu   sync.Mutex
	cert *tls.Certificate
	made time.Time
}

// renewal is how long a leaf is used. It is valid for much longer.
const renewal = 10 * time.Minute

func (l *leaf) get() (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().Round(0) // drops the monotonic clock, since the wall clock may be set
	if age := now.Sub(l.made); l.cert != nil && age >= 0 && age < renewal {
		return l.cert, nil
	}
	cert, err := l.ca.leaf(l.id, l.usage, l.names...)
	if err == nil {
		l.cert, l.made = cert, now
	}
	return cert, err
}

// leaf makes a key and a certificate.
func (a authority) leaf(id Identity, usage x509.ExtKeyUsage, names ...string) (*tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a TLS key: %w", err)
	}
	now := time.Now()
	query := url.Values{"node": {id.Node}, "job": {id.Job}}
	cert, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		NotBefore:    now.Add(-drift),
		NotAfter:     now.Add(drift),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		DNSNames:     names,
		URIs:         []*url.URL{{Scheme: "golaunch", RawQuery: query.Encode()}},
	}, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a TLS certificate for node %q: %w", id.Node, err)
	}
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

func sign(template, parent *x509.Certificate, public any, key ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
