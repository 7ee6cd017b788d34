package server

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

const (
	// maxJobs bounds the jobs that one connection may submit and watch. maxInquiries bounds its
	// inquiries. Each job and each inquiry costs goroutines and the buffers of a stream, some 50
	// KiB.
	maxJobs      = 1024
	maxInquiries = 1024
	// MaxOutputs bounds the outputs that one agent delivers at a time: one for each job and reader.
	// Output that a reader does not take waits in the coordinator, up to streamWindow for each
	// delivery, so 64 MiB in all. maxDeliveries leaves room for other answers, which are short.
	MaxOutputs    = 256
	maxDeliveries = MaxOutputs + 256
	// maxFetches bounds the workspaces that one agent fetches or serves. maxOffers bounds the
	// workspaces that one client offers at a time.
	maxFetches = 256
	maxOffers  = 16
	// streamWindow is how much of an incoming stream may wait, in bytes.
	streamWindow = 256 << 10
	// maxCalls is the room for all other calls, which are short and never wait for the streams.
	maxCalls   = 64
	maxStreams = maxJobs + maxInquiries + maxDeliveries + maxFetches + maxOffers + maxCalls
)

// openStreams counts the open streams of a connection by kind.
type openStreams struct {
	jobs, inquiries, deliveries, joins, fetches, offers atomic.Int32
}

// streamLimit bounds the open streams of one kind on a connection.
type streamLimit struct {
	max int32
	// what describes the streams in the refusal.
	what    string
	counter func(*openStreams) *atomic.Int32
}

var (
	jobLimit = &streamLimit{maxJobs, "jobs that one program submits or watches", func(o *openStreams) *atomic.Int32 { return &o.jobs }}
	// streamLimits has the limit of every kind of stream that may stay open, by method.
	streamLimits = map[string]*streamLimit{
		pb.Cluster_Submit_FullMethodName:     jobLimit,
		pb.Cluster_Watch_FullMethodName:      jobLimit,
		pb.Cluster_Inquire_FullMethodName:    {maxInquiries, "questions of one program, jobs whose output it reads included", func(o *openStreams) *atomic.Int32 { return &o.inquiries }},
		pb.Rendezvous_Deliver_FullMethodName: {maxDeliveries, "answers of one agent", func(o *openStreams) *atomic.Int32 { return &o.deliveries }},
		pb.Rendezvous_Fetch_FullMethodName:   {maxFetches, "workspaces of one agent", func(o *openStreams) *atomic.Int32 { return &o.fetches }},
		pb.Cluster_Offer_FullMethodName:      {maxOffers, "workspaces that one program offers", func(o *openStreams) *atomic.Int32 { return &o.offers }},
		pb.Rendezvous_Join_FullMethodName:    {maxCalls, "agents that say hello", func(o *openStreams) *atomic.Int32 { return &o.joins }},
	}
)

// limitStreams refuses a stream if its connection has too many of its kind. gRPC's own limit would
// instead make the stream wait, and also every later call on the connection.
func limitStreams(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	limit := streamLimits[info.FullMethod]
	if limit == nil {
		return handle(srv, stream)
	}
	open := limit.counter(&ConnOf(stream.Context()).open)
	defer open.Add(-1)
	if open.Add(1) > limit.max {
		return status.Errorf(codes.ResourceExhausted, "the limit is %d %s at a time", limit.max, limit.what)
	}
	return handle(srv, stream)
}
