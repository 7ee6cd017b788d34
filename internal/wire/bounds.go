package wire

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/core/replica"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/verdict"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// The largest legal value of everything fits through every channel that it passes: these are the bounds, TestLargest sends each value, and
// what the voters of a job say to each other has bounds of its own. In bytes, a field of a message costs its value and 2 more, 4 above 127;
// a number 1 to 5, or 10.
const (
	// MaxMessage bounds a message, both ways, and is never to grow: a heartbeat waits behind one. What is longer is sent in several, of at
	// most MaxPiece, but for one element of a list that is longer by itself.
	MaxMessage = 1 << 20
	MaxPiece   = 256 << 10
	// MaxReport bounds a report and an order with what the session adds.
	MaxReport = MaxMessage - 1<<10
	// MaxRequest bounds a request that comes in several messages: a replica.Submission with maxOrder, or the positions of 200,000 log files, two of
	// each rank, on 12,500 nodes with the longest names, 9.8 MB.
	MaxRequest = 10 << 20
	// MaxHeader bounds the headers of a stream.
	MaxHeader = 16 << 10
	// BufferSize is that of a connection's buffers: messages are small, and connections many.
	BufferSize = 4 << 10
	// window is how much may be on its way to a peer that has not read it. A fixed one keeps gRPC from measuring the network by a ping for
	// every message, which costs more than a heartbeat does.
	Window = 1 << 20
)

const (
	// MaxText bounds a text for people, and MaxTail each of the three that an Exited or a Failure
	// has of a rank's last words: 104 KiB, and 13 KiB for the verdict on a Failure. A Result has
	// one with 33 costs of MaxText: 263 KiB.
	MaxText = 4 << 10
	MaxTail = 32 << 10
	// MaxLine is that of words which come once for each rank of a node: what it does, and the key that it waits for.
	MaxLine = 128
	// MaxRAS is that of the address of a rank's RAS service: a host name and a port.
	MaxRAS = 253 + len("[]:65535")
	// maxPlace is that of where a coordinator is said to be, and MaxVoters of those are said at a time.
	maxPlace = MaxRAS
)

const (
	// MaxGPUs is for a node, and MaxNode what a node may say of itself: 1,024 GPUs with 128 bytes each, and 64 KiB of labels and the rest.
	// In a status each GPU names its holder too, "reservation " and an ID of 64 bytes: 272 KiB. The RAS addresses of a Started are 262 KiB.
	MaxGPUs = 1024
	MaxNode = 192 << 10
	// MaxRanks is placement's: a node's share of a job without GPUs has 65,535 bundles of 12 bytes, 786,420, with the node 983,028. Their
	// process ids are 327,675. With GPUs a Start has the node's twice: 384 KiB.
	MaxRanks = 1<<16 - 1
	// maxStill are the ranks that a Stalled names, 110 bytes and MaxLine each: 238 KiB.
	maxStill = 1024
	// MaxPeers are the addresses that come in one message with a question for a port: 6 bytes each, or 18 for IPv6. More come before it, in
	// as many messages as it takes.
	MaxPeers = MaxPiece / 18
)

const (
	// MaxID bounds the ID of a job, and MaxJobs are those that are not over, all of which a StopReply or a DrainReply may name: 644 KiB.
	MaxID   = 64
	MaxJobs = 10_000
	// MaxEnded are the jobs that are over and still known.
	MaxEnded = 1000
	// MaxTask, MaxRules, MaxTitle and MaxSizes (ranks per node, 3 bytes each) are of a submission: 772 KiB with MaxGPUs. The names of its
	// order, which has maxOrder, follow in messages of their own: 12,500 of the longest.
	MaxTask  = 512 << 10
	MaxRules = verdict.MaxFile
	MaxTitle = MaxText
	MaxSizes = 1 << 16
	maxOrder = 4 << 20
	// MaxKey bounds the key of a submission, which is random and has 26 bytes.
	MaxKey = 64
	// MaxCredential bounds a credential of munge, which has some 200 bytes, and comes with that.
	MaxCredential = 4 << 10
	// MaxSpans are the ranks that a reader of logs chooses, 14 bytes each, and MaxPositions what a node is told of the files that it has
	// delivered a part of, MaxPosition each: 736 KiB. Of further ones it delivers all, and the reader drops what it knows.
	MaxSpans     = 1 << 14
	MaxPositions = 1 << 14
	MaxPosition  = 32
)

// ExcessOfNode says in words what is too large of a node; it is empty when nothing is.
func ExcessOfNode(n *pb.Node) string {
	switch size := proto.Size(n); {
	case len(n.GetGpus()) > MaxGPUs:
		return fmt.Sprintf("it has %d GPUs, and a node at most %d", len(n.GetGpus()), MaxGPUs)
	case size > MaxNode:
		return fmt.Sprintf("its description is too long: %d bytes, %d at most, of which %d labels have %d; give it fewer, or shorter ones",
			size, MaxNode, len(n.GetLabels()), proto.Size(&pb.Node{Labels: n.GetLabels()}))
	}
	return ""
}

// Excess says in words what is too large of a submission; it is empty when nothing is.
func Excess(s replica.Submission) string {
	names := 0
	for _, name := range s.Job.Request.Order.List {
		names += len(name) + 4
	}
	for _, part := range []struct {
		what       string
		size, most int
		unit       string
	}{
		{"the command and its --env", len(s.Task), MaxTask, "bytes"},
		{"the failure rules", len(s.Job.Rules), MaxRules, "bytes"},
		{"the id", len(s.Job.ID), MaxID, "bytes"},
		{"the key", len(s.Key), MaxKey, "bytes"},
		{fmt.Sprintf("the order's list of %d nodes", len(s.Job.Request.Order.List)), names, maxOrder, "bytes"},
		{"the ranks per node", len(s.Job.Request.PerNode), MaxSizes, "numbers"},
		{"the choice of GPUs", len(s.GPUs), MaxGPUs, "indexes"},
	} {
		if part.size > part.most {
			return fmt.Sprintf("the job is too large for a cluster: %s: %d %s, %d at most", part.what, part.size, part.unit, part.most)
		}
	}
	for _, m := range FromSubmission(s) {
		if size := proto.Size(m); size > MaxMessage {
			return fmt.Sprintf("the job is too large for a cluster: a part of it has %d bytes, %d at most", size, MaxMessage)
		}
	}
	return ""
}
