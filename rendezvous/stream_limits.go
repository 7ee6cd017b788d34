package rendezvous

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

const (
	// mostJobs are what one connection may submit and watch, and mostInquiries what it may ask. Each
	// costs goroutines and the buffers of a stream, some 50 KiB.
	mostJobs      = 1024
	mostInquiries = 1024
	// mostOutputs are the jobs whose output one agent delivers at a time, each reader counted. What a
	// reader does not take waits here, up to streamWindow for each: 64 MiB. mostDeliveries has room
	// beside them for answers that are short.
	mostOutputs    = 256
	mostDeliveries = mostOutputs + 256
	// streamWindow is how much of a stream that comes in waits to be taken.
	streamWindow = 256 << 10
	// mostCalls is the room for all other calls, which are short and never wait for the others.
	mostCalls   = 64
	mostStreams = mostJobs + mostInquiries + mostDeliveries + mostCalls
)

// streamLimit bounds the streams of one kind that a connection has open at a time.
type streamLimit struct {
	most int32
	// what they are, for who has too many.
	what string
	of   func(*watchedConn) *atomic.Int32
}

var (
	ofJobs = &streamLimit{mostJobs, "jobs that one program submits or watches", func(c *watchedConn) *atomic.Int32 { return &c.jobs }}
	// streamLimits have all kinds that may last.
	streamLimits = map[string]*streamLimit{
		pb.Cluster_Submit_FullMethodName:     ofJobs,
		pb.Cluster_Watch_FullMethodName:      ofJobs,
		pb.Cluster_Inquire_FullMethodName:    {mostInquiries, "questions of one program, jobs whose output it reads included", func(c *watchedConn) *atomic.Int32 { return &c.inquiries }},
		pb.Rendezvous_Deliver_FullMethodName: {mostDeliveries, "answers of one agent", func(c *watchedConn) *atomic.Int32 { return &c.deliveries }},
		pb.Rendezvous_Join_FullMethodName:    {mostCalls, "agents that say hello", func(c *watchedConn) *atomic.Int32 { return &c.joins }},
	}
)

// limited refuses a stream if its connection has too many of its kind: gRPC would let it wait, and
// all calls that come after it.
func limited(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	l := streamLimits[info.FullMethod]
	p, ok := peer.FromContext(stream.Context())
	if l == nil || !ok {
		return handle(srv, stream)
	}
	open := l.of(p.Addr.(watchedAddr).conn)
	defer open.Add(-1)
	if open.Add(1) > l.most {
		return status.Errorf(codes.ResourceExhausted, "there are %d %s, and no more at a time", l.most, l.what)
	}
	return handle(srv, stream)
}
