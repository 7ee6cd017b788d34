package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// With these bounds, the largest legal value of each kind fits through every channel that it
// passes. TestLargest sends each such value. The messages between the voters of a job have bounds
// of their own. In a message, a field costs 2 bytes more than its value, or 4 more if the value has
// more than 127 bytes. A number costs 1 to 5 bytes, or 10.
const (
	// MaxMessage bounds a message in either direction. It must never grow, because a heartbeat
	// waits behind a message. Longer content is sent in several messages of at most MaxPiece,
	// unless one element of a list alone is longer.
	MaxMessage = 1 << 20
	MaxPiece   = 256 << 10
	// MaxReport bounds a report or an order. The rest of a message is room for the fields that the
	// session adds.
	MaxReport = MaxMessage - 1<<10
	// MaxRequest bounds a request in several messages: a replica.Submission with maxOrder, or the
	// positions of 200,000 log files. With two files for each rank, on 12,500 nodes with the
	// longest names, these positions have 9.8 MB.
	MaxRequest = 10 << 20
	// MaxHeader bounds the headers of a stream.
	MaxHeader = 16 << 10
	// BufferSize is the size of a connection's buffers. It is small, because messages are small and
	// there are many connections.
	BufferSize = 4 << 10
	// Window is how much data may be on its way to a peer unread. It is fixed, because gRPC would
	// otherwise measure the network with a ping for every message. Such a ping costs more than a
	// heartbeat.
	Window = 1 << 20
)

const (
	// MaxText bounds a text for people. MaxTail bounds each of the three texts with a rank's last
	// words in an Exited or a Failure: 104 KiB in all, and 13 KiB more for the verdict on a
	// Failure. A Result has one Failure, 33 costs with up to MaxText each, and the phases of a
	// start: 266 KiB.
	MaxText = 4 << 10
	MaxTail = 32 << 10
	// MaxLine bounds a text that is sent for each rank of a node: what the rank does, or the key
	// for which it waits.
	MaxLine = 128
	// MaxName bounds the name of a node or a job, as DNS bounds a host name (RFC 1035).
	MaxName = 253
	// MaxRAS bounds the address of a rank's RAS service: a host name and a port.
	MaxRAS = MaxName + len("[]:65535")
	// maxPlace bounds the address of a coordinator. At most MaxVoters of them are sent at a time.
	maxPlace = MaxRAS
)

const (
	// MaxGPUs bounds the GPUs of a node. MaxNode bounds its description: 1,024 GPUs with 128 bytes
	// each, and 64 KiB for labels and the rest. In a status, each GPU also names its holder,
	// "reservation " and an ID of 64 bytes: 272 KiB in all. The RAS addresses of a Started have 262
	// KiB.
	MaxGPUs = 1024
	MaxNode = 192 << 10
	// MaxRanks is placement's bound. A node's share of a job without GPUs has 65,535 bundles of 12
	// bytes: 786,420 bytes, and 983,028 with the description of the node. The process IDs have
	// 327,675 bytes. With GPUs, a Start has the node's GPUs twice: 384 KiB.
	MaxRanks = 1<<16 - 1
	// maxStill bounds the ranks that a Stalled names, with 110 bytes and MaxLine each: 238 KiB.
	maxStill = 1024
	// MaxReplica bounds the name of a replica; a cohort has up to job.MaxGroups replicas. MaxMember
	// bounds the data that other replicas get about a replica: enough for 650 ranks with 100 bytes
	// each. For a whole cohort, lighthouse.MaxMembers is the bound.
	MaxReplica = 256
	MaxMember  = 64 << 10
	// MaxPeers bounds the addresses of peers in one message: 6 bytes each, or 18 for IPv6. If an
	// order has more peers, messages with the first peers precede the order.
	MaxPeers = MaxPiece / 18
)

const (
	// MaxID bounds the ID of a job, and MaxJobs the unfinished jobs. A StopReply or a DrainReply
	// may name all unfinished jobs: 644 KiB.
	MaxID   = 64
	MaxJobs = 10_000
	// MaxTask, MaxRules, MaxTitle and MaxSizes (ranks per node, 3 bytes each) bound parts of a
	// submission: 772 KiB with MaxGPUs. The names of its order follow in messages of their own.
	// maxOrder bounds them: 12,500 of the longest names.
	MaxTask  = 512 << 10
	MaxRules = verdict.MaxFile
	MaxTitle = MaxText
	MaxSizes = 1 << 16
	maxOrder = 4 << 20
	// MaxUser bounds the name of a user and of a priority.
	MaxUser = 64
	// MaxKey bounds the key of a submission, which is random and has 26 bytes.
	MaxKey = 64
	// MaxCredential bounds a credential of munge, which is sent with a submission and has some 200
	// bytes.
	MaxCredential = 4 << 10
	// MaxSpans bounds the ranges of ranks that a reader of logs chooses, with 14 bytes each.
	// MaxPositions bounds the partly delivered files that a node is told about, with MaxPosition
	// bytes each. Together they have 736 KiB. The node delivers any other file whole, and the
	// reader drops what it has already.
	MaxSpans     = 1 << 14
	MaxPositions = 1 << 14
	MaxPosition  = 32
)

// ExcessOfNode names the part of a node's description that is too large; empty if there is none.
func ExcessOfNode(n *pb.Node) string {
	switch size := plainpb.Oversize(n, MaxNode); {
	case len(n.GetGpus()) > MaxGPUs:
		return fmt.Sprintf("it has %d GPUs, and a node at most %d", len(n.GetGpus()), MaxGPUs)
	case size > 0:
		return fmt.Sprintf("its description is too long: %d bytes, %d at most; its %d labels have %d; use fewer or shorter ones",
			size, MaxNode, len(n.GetLabels()), proto.Size(&pb.Node{Labels: n.GetLabels()}))
	}
	return ""
}

// Excess names the part of a submission that is too large; empty if there is none.
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
		{"the priority", len(s.Priority), MaxUser, "bytes"},
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
