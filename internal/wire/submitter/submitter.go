// Package submitter finds out which user is at the other end of a connection.
//
// On the same machine the kernel knows, because the other end is a socket with an owner. For
// another machine, the client has munge seal a value that only the two ends of its TLS connection
// can know (RFC 9266). So a stolen credential is useless on another connection. Like munge, this
// assumes that a user ID means the same user on all machines of a cluster.
package submitter

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/golaunch/golaunch/internal/host/munge"
)

// ErrElsewhere says that a credential was made for another connection. The client may have
// reconnected.
var ErrElsewhere = errors.New("the credential is for another connection")

// overflow is the ID that the kernel and munge give for a user without an ID in a user namespace
// (user_namespaces(7)). It identifies no user.
const overflow = 65534

// statement returns the text that is sealed for a connection. Its first words distinguish it from
// texts for other purposes.
func statement(s tls.ConnectionState) (string, error) {
	if s.Version != tls.VersionTLS13 || !s.HandshakeComplete {
		return "", errors.New("a connection without TLS 1.3 cannot be identified")
	}
	value, err := s.ExportKeyingMaterial("EXPORTER-golaunch-submitter", nil, 32)
	if err != nil {
		return "", fmt.Errorf("cannot identify a TLS connection: %w", err)
	}
	return "golaunch submitter " + hex.EncodeToString(value), nil
}

// Seal returns a credential that proves, on this connection, who this process is.
func Seal(ctx context.Context, s tls.ConnectionState) (credential string, err error) {
	text, err := statement(s)
	if err != nil {
		return "", err
	}
	return munge.Sign(ctx, text)
}

// Open returns the user who sealed a credential for this connection.
func Open(ctx context.Context, s tls.ConnectionState, credential string) (uid uint32, err error) {
	want, err := statement(s)
	if err != nil {
		return 0, err
	}
	said, uid, err := munge.Open(ctx, credential)
	switch {
	case err != nil:
		return 0, err
	case said != want:
		return 0, ErrElsewhere
	case uid == overflow:
		return 0, errors.New("munge does not know the user")
	}
	return uid, nil
}
