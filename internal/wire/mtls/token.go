package mtls

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/golaunch/golaunch/internal/host/account"
)

// Bounds of a token's text, in bytes. NewToken makes 64 hexadecimal digits.
const (
	minToken = 16
	maxToken = 4096
)

// Token is the secret that the machines of a cluster share, or a submit token, which is derived
// from it. It prints and logs as its ID, never as the secret. Both kinds have the same ID.
type Token struct {
	text string
	// submits is set in a submit token only.
	submits submitter
}

// submitter proves that its holder may submit, and verifies a coordinator. It cannot act as a
// coordinator or an agent.
type submitter struct {
	seed        [ed25519.SeedSize]byte
	coordinator [ed25519.PublicKeySize]byte
}

// submitPrefix begins a submit token. The seed and the key follow in hexadecimal.
const submitPrefix = "submit-"

// ErrSubmitToken says that a token does not allow its holder to be a node or a coordinator.
var ErrSubmitToken = errors.New("this token lets its holder submit, watch and stop jobs; a node or a coordinator needs the token of the cluster itself")

// ParseToken parses a token's text, without white space around it. The text must have 16 to 4096
// bytes. They must be random, because anyone who can reach a coordinator can test guesses offline.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if digits, is := strings.CutPrefix(text, submitPrefix); is {
		var s submitter
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != len(s.seed)+len(s.coordinator) {
			return Token{}, errors.New("the submit token is incomplete; golaunch submit-token prints it")
		}
		copy(s.coordinator[:], b[copy(s.seed[:], b):])
		return Token{text, s}, nil
	}
	switch {
	case len(text) < minToken:
		return Token{}, fmt.Errorf("the token has %d bytes, fewer than %d; make one with: openssl rand -hex 32", len(text), minToken)
	case len(text) > maxToken:
		return Token{}, fmt.Errorf("the token has more than %d bytes; is it the right file?", maxToken)
	}
	return Token{text: text}, nil
}

// NewToken makes a token of 32 random bytes.
func NewToken() Token {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return Token{text: hex.EncodeToString(b[:])}
}

// Submit returns the token that allows submitting jobs only.
func (t Token) Submit() Token {
	s := t.submitter()
	return Token{submitPrefix + hex.EncodeToString(slices.Concat(s.seed[:], s.coordinator[:])), s}
}

func (t Token) submitter() (s submitter) {
	if t.onlySubmits() {
		return t.submits
	}
	copy(s.seed[:], t.derive("golaunch mtls submit authority v1", len(s.seed)))
	copy(s.coordinator[:], t.key().Public().(ed25519.PublicKey))
	return s
}

func (t Token) onlySubmits() bool { return t.submits != submitter{} }

// key is the signing key of the cluster's machines.
func (t Token) key() ed25519.PrivateKey {
	if t.onlySubmits() {
		panic("a submit token has no such key")
	}
	return ed25519.NewKeyFromSeed(t.derive("golaunch mtls authority v1", ed25519.SeedSize))
}

// LoadToken finds the token: in the file at path, else in env (the value of GOLAUNCH_TOKEN), else
// in ~/.golaunch/token, which it creates at first use. It refuses a file that others can read, and
// a submit token ([ErrSubmitToken]).
func LoadToken(path, env string) (Token, error) { return ofCluster(loadToken(path, env)) }

// FindClusterToken is LoadToken, but creates no token.
func FindClusterToken(path, env string) (Token, error) { return ofCluster(FindToken(path, env)) }

func ofCluster(t Token, err error) (Token, error) {
	if err == nil && t.onlySubmits() {
		return Token{}, ErrSubmitToken
	}
	return t, err
}

func loadToken(path, env string) (Token, error) {
	if path != "" {
		return readToken(path)
	}
	if env != "" {
		t, err := ParseToken(env)
		if err != nil {
			return Token{}, fmt.Errorf("GOLAUNCH_TOKEN: %w", err)
		}
		return t, nil
	}
	home, err := account.Home()
	if err != nil {
		return Token{}, fmt.Errorf("cannot find ~/.golaunch/token: %w; set GOLAUNCH_TOKEN or --token-file", err)
	}
	path = filepath.Join(home, ".golaunch", "token")
	t, err := readToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(path)
	}
	return t, err
}

// FindToken is LoadToken for clients. It creates no token, because that would be useless to a
// client, and accepts a submit token.
func FindToken(path, env string) (Token, error) {
	if path != "" || env != "" {
		return loadToken(path, env)
	}
	if home, err := account.Home(); err == nil {
		path = filepath.Join(home, ".golaunch", "token")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return Token{}, fmt.Errorf("there is no token here: copy %s from the machine of the coordinator, or set GOLAUNCH_TOKEN or --token-file", path)
		}
	}
	return loadToken(path, env)
}

// readToken checks the file that it has opened, not the path, so that the file cannot be replaced
// in between.
func readToken(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return Token{}, fmt.Errorf("cannot read the token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, fmt.Errorf("cannot read the token: %w", err)
	}
	if info.IsDir() { // before its mode is checked: chmod 600 would be bad advice for /tmp
		return Token{}, fmt.Errorf("token file %s is a directory; name the file with the token", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return Token{}, fmt.Errorf("token file %s belongs to uid %d, who can read it; make one of your own", path, st.Uid)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Token{}, fmt.Errorf("token file %s is open to others (mode %04o); run: chmod 600 %[1]s", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return Token{}, fmt.Errorf("cannot read the token: %w", err)
	}
	t, err := ParseToken(string(text))
	if err != nil {
		return Token{}, fmt.Errorf("token file %s: %w", path, err)
	}
	return t, nil
}

// makeToken links a finished file into place. If two processes start at once, one of them wins, and
// both read its token.
func makeToken(path string) (Token, error) {
	fail := func(err error) (Token, error) {
		return Token{}, fmt.Errorf("cannot make the token file: %w; set GOLAUNCH_TOKEN or --token-file", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return fail(err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(NewToken().text + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	return readToken(path)
}

// Text is the secret itself, for the environment of an agent that golaunch starts.
func (t Token) Text() string { return t.text }

// ID is a public fingerprint of four hexadecimal digits, enough to see that two machines have
// different tokens.
func (t Token) ID() string {
	key := t.submitter().coordinator
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:2])
}

// String hides the token.
func (t Token) String() string { return "token " + t.ID() }

// GoString hides the token.
func (t Token) GoString() string { return t.String() }

// LogValue hides the token.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// derive makes n bytes for one purpose. The bytes reveal neither the token nor the bytes for
// another purpose (RFC 5869).
func (t Token) derive(purpose string, n int) []byte {
	b, err := hkdf.Key(sha256.New, []byte(t.text), nil, purpose, n)
	if err != nil {
		panic(err) // no caller asks for too many bytes
	}
	return b
}
