package wire

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
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
	// Leader is where it is led, if that is known, and Wait how long to wait before asking there, or else anywhere.
	Leader string
	Wait   time.Duration
}

func (e *ElsewhereError) Error() string { return e.Why }

// Status is the error as agents hear it.
func (e *ElsewhereError) Status() error {
	s := status.New(codes.Unavailable, Plain(e.Why))
	if detailed, err := s.WithDetails(&pb.Voters{Addrs: e.Addrs, Leader: e.Leader, Wait: durationpb.New(e.Wait)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// Elsewhere is the ElsewhereError behind an end of a stream; nil when there is none.
func Elsewhere(s *status.Status) *ElsewhereError {
	for _, detail := range s.Details() {
		if v, ok := detail.(*pb.Voters); ok && len(v.GetAddrs()) > 0 {
			e := &ElsewhereError{Why: s.Message(), Addrs: v.GetAddrs(), Wait: v.GetWait().AsDuration()}
			if place(v.GetLeader()) {
				e.Leader = v.GetLeader()
			}
			return e
		}
	}
	return nil
}

// place says that a text may be a HOST:PORT.
func place(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	return err == nil && host != "" && port != "" && len(addr) <= maxPlace
}

// Over is why an agent is refused whose job has ended.
const Over = "the job is over"
