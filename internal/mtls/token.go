package mtls

import (
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
	"strings"
	"syscall"
)

// Bounds of a token's text, in bytes. NewToken makes 64 hexadecimal digits.
const (
	minToken = 16
	maxToken = 4096
)

// Token is the secret that the machines of a cluster share. It prints and logs as its ID, never as itself.
type Token struct{ text string }

// ParseToken takes a token's text, less the white space around it: 16 to 4096 bytes, which must be random, for whoever can reach
// a coordinator can try guesses at home.
func ParseToken(text string) (Token, error) {
	switch text = strings.TrimSpace(text); {
	case len(text) < minToken:
		return Token{}, fmt.Errorf("the token has %d bytes, fewer than %d; make one with: openssl rand -hex 32", len(text), minToken)
	case len(text) > maxToken:
		return Token{}, fmt.Errorf("the token has more than %d bytes; is it the right file?", maxToken)
	}
	return Token{text}, nil
}

// NewToken makes a token of 32 random bytes.
func NewToken() Token {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return Token{hex.EncodeToString(b[:])}
}

// LoadToken finds the token: in the file at path, else in env (the value of GOLAUNCH_TOKEN), else in ~/.golaunch/token, which it
// makes at first use. A file that others can read is refused.
func LoadToken(path, env string) (Token, error) {
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
	home, err := os.UserHomeDir()
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

// FindToken is LoadToken for who asks others, to whom a token that is made up would mean nothing: it makes none.
func FindToken(path, env string) (Token, error) {
	if home, err := os.UserHomeDir(); path == "" && env == "" && err == nil {
		path = filepath.Join(home, ".golaunch", "token")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return Token{}, fmt.Errorf("there is no token here: copy %s from the machine of the coordinator, or set GOLAUNCH_TOKEN or --token-file", path)
		}
	}
	return LoadToken(path, env)
}

// readToken checks the file that it opened, not the path, so that nobody can swap the file in between.
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
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return Token{}, fmt.Errorf("token file %s belongs to uid %d, who knows it; make one of your own", path, st.Uid)
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

// makeToken links a finished file into place: of two processes that start at once one wins, and both read the winner's token.
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

// ID is a public fingerprint of four hexadecimal digits, enough to see that two machines have different tokens.
func (t Token) ID() string { return hex.EncodeToString(t.derive("golaunch token id v1", 2)) }

// String hides the token.
func (t Token) String() string { return "token " + t.ID() }

// GoString hides the token.
func (t Token) GoString() string { return t.String() }

// LogValue hides the token.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// derive makes n bytes for one purpose, from which neither the token nor another purpose's bytes can be found (RFC 5869).
func (t Token) derive(purpose string, n int) []byte {
	b, err := hkdf.Key(sha256.New, []byte(t.text), nil, purpose, n)
	if err != nil {
		panic(err) // only for a purpose or a length that no caller asks for
	}
	return b
}
