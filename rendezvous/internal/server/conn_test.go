package server

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/wire"
)

// TestProofInPieces checks that a proof is recognized in whatever pieces it arrives.
func TestProofInPieces(t *testing.T) {
	var secret [wire.ProofSize]byte
	rand.Read(secret[:])
	proof := sha256.Sum256(secret[:])
	readsProof(t, proof, proof, false)
	readsProof(t, proof, secret, true)
}

// readsProof checks that a connection recognizes a proof. The commitment is the hash of first.
func readsProof(t *testing.T, first, proof [wire.ProofSize]byte, outOfMemory bool) {
	t.Helper()
	sum := sha256.Sum256(first[:])
	commitment := sum[:]
	for size := 1; size < 3*wire.ProofSize; size++ {
		for before := range 2 * wire.ProofSize {
			stream := append(make([]byte, before), proof[:]...)
			proven := make(chan bool)
			for _, late := range []bool{false, true} {
				w := &Conn{Conn: &script{said: stream, end: io.EOF}}
				if !late {
					w.OnDeath(commitment, func(is bool) { proven <- is })
				}
				for {
					if _, err := w.Read(make([]byte, size)); err != nil {
						break
					}
				}
				if late { // the agent died before its hello was handled
					w.OnDeath(commitment, func(is bool) { proven <- is })
				}
				if is := <-proven; is != outOfMemory {
					t.Errorf("killed for lack of memory: %v, want %v", is, outOfMemory)
				}
			}
		}
	}
}

// TestAClosedEnd checks which errors of a connection mean that the peer closed it in order.
func TestAClosedEnd(t *testing.T) {
	for _, c := range []struct {
		end     error
		inOrder bool
	}{
		{io.EOF, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}, false},
	} {
		w := &Conn{Conn: &script{end: c.end}}
		w.Read(make([]byte, 1))
		if w.ClosedInOrder() != c.inOrder {
			t.Errorf("after %v closed in order: %v", c.end, w.ClosedInOrder())
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if err := errors.Join(near.(*net.TCPConn).SetLinger(0), near.Close()); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = far.Write([]byte("x"))
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after a write saw a reset, a read sees %v", err)
	}
	if far.(*Conn).ClosedInOrder() {
		t.Error("after a write saw a reset, it is gone")
	}
}

// script is a connection that delivers some bytes and then ends.
type script struct {
	net.Conn
	said []byte
	end  error
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.said) == 0 {
		return 0, s.end
	}
	n := copy(b, s.said)
	s.said = s.said[n:]
	return n, nil
}

// TestCommitments checks that no bytes match a commitment of a wrong length, and that zeros are no
// proof.
func TestCommitments(t *testing.T) {
	zero := sha256.Sum256(make([]byte, wire.ProofSize))
	for _, commitment := range [][]byte{nil, {}, zero[:8], append(zero[:], 0)} {
		w := &Conn{Conn: &script{end: io.EOF}}
		w.OnDeath(commitment, func(bool) { t.Errorf("%x is kept", commitment) })
		w.Read(make([]byte, 1))
	}
}

// TestRecords checks that a connection passes on the records of TLS one by one, whatever pieces
// arrive. It still recognizes a proof that follows an incomplete record.
func TestRecords(t *testing.T) {
	secret := [wire.ProofSize]byte{7}
	sum := sha256.Sum256(secret[:])
	var said []byte
	var want []string
	for size := range 40 {
		record := append([]byte{23, 3, 3, 0, byte(size)}, bytes.Repeat([]byte{byte('a' + size)}, size)...)
		said, want = append(said, record...), append(want, string(record))
	}
	torn := []byte{23, 3, 3, 0, 40, 'x'}
	said = append(append(said, torn...), secret[:]...)
	for size := 1; size < 3*len(want); size++ {
		proven := make(chan bool, 1)
		w := &Conn{Conn: &script{said: bytes.Clone(said), end: io.EOF}, records: new(records)}
		w.OnDeath(sum[:], func(bool) { proven <- true })
		var got []string
		for whole := true; ; {
			b := make([]byte, size)
			n, err := w.Read(b)
			if err != nil {
				break
			}
			if whole {
				got = append(got, "")
			}
			got[len(got)-1] += string(b[:n])
			last := got[len(got)-1]
			whole = len(last) >= 5 && len(last) == 5+int(last[4])
		}
		if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("with reads of %d bytes: %q", size, got)
		}
		<-proven
	}
}
