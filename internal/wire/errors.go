package wire

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// Wrong is the error for a request that never makes sense.
func Wrong(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, Plain(fmt.Sprintf(format, args...)))
}

// Refused is the error with which a stream ends that the agent must not open again.
func Refused(format string, args ...any) error {
	return status.Error(codes.FailedPrecondition, Plain(fmt.Sprintf(format, args...)))
}

// ElsewhereError says that a job goes on without the coordinator that was asked. An agent whose session ends with it has to join anew.
type ElsewhereError struct {
	Why string
	// Addrs are where the job is led, or may come to be, HOST:PORT; none is where the agent began.
	Addrs []string
}

func (e *ElsewhereError) Error() string { return e.Why }

// Status is the error as agents hear it.
func (e *ElsewhereError) Status() error {
	s := status.New(codes.Unavailable, Plain(e.Why))
	if detailed, err := s.WithDetails(&pb.Voters{Addrs: e.Addrs}); err == nil {
		s = detailed
	}
	return s.Err()
}

// Elsewhere is the ElsewhereError behind an end of a stream; nil when there is none.
func Elsewhere(s *status.Status) *ElsewhereError {
	for _, detail := range s.Details() {
		if v, ok := detail.(*pb.Voters); ok && len(v.GetAddrs()) > 0 {
			return &ElsewhereError{s.Message(), v.GetAddrs()}
		}
	}
	return nil
}

// Over is why an agent is refused whose job has ended.
const Over = "the job is over"
