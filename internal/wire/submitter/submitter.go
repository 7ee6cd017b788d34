// Package submitter tells which user is at the other end of a connection.
//
// On the same machine the kernel knows: the other end is a socket too, and has an owner. On another machine the client has munge say who it
// is, of the TLS connection that it has: what it seals is a value that only the two ends of this connection can know (RFC 9266), so that
// nobody who comes by a credential can show it elsewhere. A user means the same on all machines of a cluster: that is munge's premise as well.
package submitter

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/golaunch/golaunch/internal/host/munge"
)

// ErrElsewhere says that a credential was made for another connection: the client may have connected again.
var ErrElsewhere = errors.New("the credential is for another connection")

// overflow is what the kernel and munge call a user whom a user namespace does not know (user_namespaces(7)), and so nobody.
const overflow = 65534

// statement is what is sealed for a connection. Its first words keep it from being taken for a text of another purpose.
func statement(s tls.ConnectionState) (string, error) {
	if s.Version != tls.VersionTLS13 || !s.HandshakeComplete {
		return "", errors.New("a connection without TLS 1.3 has nothing to be known by")
	}
	value, err := s.ExportKeyingMaterial("EXPORTER-golaunch-submitter", nil, 32)
	if err != nil {
		return "", fmt.Errorf("cannot tell a TLS connection from others: %w", err)
	}
	return "golaunch submitter " + hex.EncodeToString(value), nil
}

// Seal says who this process is, for a connection of it.
func Seal(ctx context.Context, s tls.ConnectionState) (credential string, err error) {
	text, err := statement(s)
	if err != nil {
		return "", err
	}
	return munge.Sign(ctx, text)
}

// Open is the user who has sealed a credential for a connection.
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
