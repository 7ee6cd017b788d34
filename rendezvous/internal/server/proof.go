package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"github.com/golaunch/golaunch/internal/wire"
)

// received watches the bytes that a connection receives. It notes their end, and looks for the
// proof that the agent is dead.
type received struct {
	mu sync.Mutex
	// closed says that the peer closed its end.
	closed bool
	// tail holds the last bytes read. onDeath is called when commitment is the SHA-256 of tail. It
	// is also called when commitment is the SHA-256 of the SHA-256 of tail, which means that the
	// kernel killed the agent because memory ran out.
	tail       [wire.ProofSize]byte
	commitment []byte
	onDeath    func(outOfMemory bool)
}

// note notes the bytes that were read.
func (r *received) note(b []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := b[max(0, len(b)-wire.ProofSize):]
	copy(r.tail[:], r.tail[len(last):])
	copy(r.tail[wire.ProofSize-len(last):], last)
	r.closed = r.closed || errors.Is(err, io.EOF)
	r.checkProof()
}

// expect makes the connection call f once it has received the proof that matches a commitment.
func (r *received) expect(commitment []byte, f func(outOfMemory bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commitment, r.onDeath = commitment, f
	r.checkProof()
}

func (r *received) checkProof() {
	if len(r.commitment) == 0 {
		return
	}
	once := sha256.Sum256(r.tail[:])
	twice := sha256.Sum256(once[:])
	outOfMemory := bytes.Equal(twice[:], r.commitment)
	if outOfMemory || bytes.Equal(once[:], r.commitment) {
		r.commitment = nil
		go r.onDeath(outOfMemory)
	}
}

func (r *received) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}
