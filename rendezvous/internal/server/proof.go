package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"github.com/golaunch/golaunch/internal/wire"
)

// received watches what a connection receives for its end, and for the proof that its agent is dead.
type received struct {
	mu sync.Mutex
	// closed says that the peer closed its end.
	closed bool
	// tail holds the last bytes read. onDeath is called when commitment is the SHA-256 of tail, or the
	// SHA-256 of the SHA-256 of tail, which says that the kernel killed the agent for memory.
	tail       [wire.ProofSize]byte
	commitment []byte
	onDeath    func(outOfMemory bool)
}

// note notes what was read.
func (r *received) note(b []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := b[max(0, len(b)-wire.ProofSize):]
	copy(r.tail[:], r.tail[len(last):])
	copy(r.tail[wire.ProofSize-len(last):], last)
	r.closed = r.closed || errors.Is(err, io.EOF)
	r.checkProof()
}

// expect has f called for the proof of a commitment.
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
