package wire

import (
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// Wrong returns the error for a request that can never make sense.
func Wrong(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, Plain(fmt.Sprintf(format, args...)))
}

// Refused returns the error that ends a stream which the agent must not open again.
func Refused(format string, args ...any) error {
	return status.Error(codes.FailedPrecondition, Plain(fmt.Sprintf(format, args...)))
}

// ElsewhereError says that a job continues without the coordinator that was asked. An agent whose
// session ends with this error must join again.
type ElsewhereError struct {
	Why string
	// Addrs are the addresses where the coordinator is or may be elected, HOST:PORT. If there are
	// none, the coordinator is where the agent first joined.
	Addrs []string
	// Leader is where the coordinator is, if known. Wait is how long to wait before asking there
	// or, if Leader is unknown, before asking anywhere.
	Leader string
	Wait   time.Duration
}

func (e *ElsewhereError) Error() string { return e.Why }

// Status returns the error in the form in which agents receive it.
func (e *ElsewhereError) Status() error {
	s := status.New(codes.Unavailable, Plain(e.Why))
	if detailed, err := s.WithDetails(&pb.Voters{Addrs: e.Addrs, Leader: e.Leader, Wait: durationpb.New(e.Wait)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// Elsewhere returns the ElsewhereError that ended a stream, or nil.
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

// place reports whether a text may be a HOST:PORT.
func place(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	return err == nil && host != "" && port != "" && len(addr) <= maxPlace
}

// Over returns the error for an agent that joins after the end of its job. It is an error of
// Refused.
func Over() error {
	s := status.New(codes.FailedPrecondition, "the job is over")
	if detailed, err := s.WithDetails(&pb.Finish{}); err == nil {
		s = detailed
	}
	return s.Err()
}

// IsOver reports whether an error is Over.
func IsOver(s *status.Status) bool {
	return slices.ContainsFunc(s.Details(), func(detail any) bool { _, over := detail.(*pb.Finish); return over })
}
