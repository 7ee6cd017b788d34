package rendezvous

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// intake is where chunks become a message. A candidate has one: only a leader sends what is longer than a chunk, one message at a time, so
// that the newer of two is the one that counts, and has the memory of the other.
type intake struct {
	mu   sync.Mutex
	call pb.Quorum_StepServer
	data []byte
}

// Add is the message that a chunk completes, or nil.
func (i *intake) add(call pb.Quorum_StepServer, p *pb.Chunk) ([]byte, error) {
	switch size := p.GetSize(); {
	case size > quorum.MaxMessage:
		return nil, status.Errorf(codes.ResourceExhausted, "a message of %d bytes is over the limit of %d", size, quorum.MaxMessage)
	case size > 0 && size == uint64(len(p.GetData())):
		return p.GetData(), nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.GetSize() > 0 {
		i.call, i.data = call, make([]byte, 0, p.GetSize())
	}
	switch {
	case i.call != call:
		return nil, status.Error(codes.Aborted, "a newer message has come in between")
	case len(i.data)+len(p.GetData()) > cap(i.data):
		return nil, status.Error(codes.InvalidArgument, "a message is longer than it says")
	}
	i.data = append(i.data, p.GetData()...)
	if len(i.data) < cap(i.data) {
		return nil, nil
	}
	message := i.data
	i.call, i.data = nil, nil
	return message, nil
}

// leave forgets what a call that ends has not brought to its end.
func (i *intake) leave(call pb.Quorum_StepServer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.call == call {
		i.call, i.data = nil, nil
	}
}
