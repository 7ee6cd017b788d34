package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// The name of an authority is one of these prefixes followed by the token's ID.
const (
	machineName = "golaunch token "
	submitName  = "golaunch submit token "
)

// ErrToken says that the two ends have different tokens.
var ErrToken = errors.New("another token")

// ErrNoTLS says that the peer does not use TLS: it is not golaunch, or its TLS is off.
var ErrNoTLS = errors.New("speaks no TLS")

// ExplainClient says why an agent's handshake with the coordinator at addr failed, and what to do.
// If the error wraps [ErrToken] or [ErrNoTLS], trying again cannot help. config is the agent's,
// from [Client].
func ExplainClient(err error, addr string, config *tls.Config) error {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) && errors.As(verify.Err, new(x509.UnknownAuthorityError)) {
		here := "none"
		if leaf, err := config.GetClientCertificate(nil); err == nil {
			here = issuer(leaf.Leaf)
		}
		return fmt.Errorf("the coordinator at %s has %w (%s there, %s here); copy ~/.golaunch/token from its machine (mode 0600) "+
			"or set GOLAUNCH_TOKEN", addr, ErrToken, issuer(verify.UnverifiedCertificates[0]), here)
	}
	return explain(err, "the coordinator at "+addr)
}

// ExplainServer says why a handshake with the peer at addr failed: the coordinator refused the
// peer, or the peer refused the coordinator.
func ExplainServer(err error, addr string) error {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) && errors.As(verify.Err, new(x509.UnknownAuthorityError)) {
		return fmt.Errorf("the peer at %s has %w", addr, ErrToken)
	}
	// The agent verifies first, so its alert is the usual sign of a wrong token. crypto/tls has no
	// type for a peer's alert over TCP.
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate") {
		return fmt.Errorf("the peer at %s does not accept this coordinator: it has %w, or its clock is a day off", addr, ErrToken)
	}
	return explain(err, "the peer at "+addr)
}

func explain(err error, who string) error {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the clock of %s and the one here differ by more than %v: %w", who, drift, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage, errors.As(err, &name):
		return fmt.Errorf("%s shows a certificate for another role: %w", who, err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Errorf("%s %w; is it golaunch?", who, ErrNoTLS)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s did not finish the TLS handshake in time", who)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s closed the connection during the TLS handshake", who)
	}
	return fmt.Errorf("TLS handshake with %s failed: %w", who, err)
}

var tokenID = lazyregexp.New(`^[0-9a-f]{4}$`)

// issuer is the ID of the token that made a certificate. The peer is not trusted, so only four
// digits are shown.
func issuer(cert *x509.Certificate) string {
	for _, name := range []string{machineName, submitName} {
		if id, ok := strings.CutPrefix(cert.Issuer.CommonName, name); ok && tokenID.Get().MatchString(id) {
			return id
		}
	}
	return "not golaunch's"
}
