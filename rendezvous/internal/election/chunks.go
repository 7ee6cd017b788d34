package election

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// chunkAssembler makes messages from their chunks. A participant needs only one, because only a
// leader sends messages longer than a chunk, and only one at a time. A newer message replaces an
// unfinished message and its memory.
type chunkAssembler struct {
	mu   sync.Mutex
	call pb.Quorum_StepServer
	data []byte
}

// add returns the message that a chunk completes, or nil.
func (a *chunkAssembler) add(call pb.Quorum_StepServer, c *pb.Chunk) ([]byte, error) {
	switch size := c.GetSize(); {
	case size > quorum.MaxMessage:
		return nil, status.Errorf(codes.ResourceExhausted, "a message of %d bytes is over the limit of %d", size, quorum.MaxMessage)
	case size > 0 && size == uint64(len(c.GetData())):
		return c.GetData(), nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.GetSize() > 0 {
		a.call, a.data = call, make([]byte, 0, c.GetSize())
	}
	switch {
	case a.call != call:
		return nil, status.Error(codes.Aborted, "a newer message has come in between")
	case len(a.data)+len(c.GetData()) > cap(a.data):
		return nil, status.Error(codes.InvalidArgument, "a message is longer than announced")
	}
	a.data = append(a.data, c.GetData()...)
	if len(a.data) < cap(a.data) {
		return nil, nil
	}
	message := a.data
	a.call, a.data = nil, nil
	return message, nil
}

// forget drops the unfinished message of a call that ends.
func (a *chunkAssembler) forget(call pb.Quorum_StepServer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.call == call {
		a.call, a.data = nil, nil
	}
}
