package rendezvous

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/verdict"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// The largest legal value of everything fits through every channel that it passes: these are the bounds, TestLargest sends each value, and
// what the voters of a job say to each other has bounds of its own. In bytes, a field of a message costs its value and 2 more, 4 above 127;
// a number 1 to 5, or 10.
const (
	// maxMessage bounds a message, both ways, and is never to grow: a heartbeat waits behind one. What is longer is sent in several, of at
	// most maxPiece, but for one element of a list that is longer by itself.
	maxMessage = 1 << 20
	maxPiece   = 256 << 10
	// maxReport bounds a report and an order with what the session adds.
	maxReport = maxMessage - 1<<10
	// maxRequest bounds a request that comes in several messages: a Submission with maxOrder, or the positions of 200,000 log files, two of
	// each rank, on 12,500 nodes with the longest names, 9.8 MB.
	maxRequest = 10 << 20
	// maxHeader bounds the headers of a stream.
	maxHeader = 16 << 10
	// bufferSize is that of a connection's buffers: messages are small, and connections many.
	bufferSize = 4 << 10
	// window is how much may be on its way to a peer that has not read it. A fixed one keeps gRPC from measuring the network by a ping for
	// every message, which costs more than a heartbeat does.
	window = 1 << 20
)

const (
	// maxText bounds a text for people, and maxTail each of the three that an Exited or a Failure has of a rank's last words: 104 KiB. A
	// Result has one with 33 costs of maxText: 250 KiB.
	maxText = 4 << 10
	maxTail = 32 << 10
	// maxLine is that of words which come once for each rank of a node: what it does, and the key that it waits for.
	maxLine = 128
	// maxRAS is that of the address of a rank's RAS service: a host name and a port.
	maxRAS = 253 + len("[]:65535")
)

const (
	// maxGPUs is for a node, and maxNode what a node may say of itself: 1,024 GPUs with 128 bytes each, and 64 KiB of labels and the rest.
	// In a status each GPU names its holder too, "reservation " and an ID of 64 bytes: 272 KiB. The RAS addresses of a Started are 262 KiB.
	maxGPUs = 1024
	maxNode = 192 << 10
	// maxRanks is placement's: a node's share of a job without GPUs has 65,535 bundles of 12 bytes, 786,420, with the node 983,028. Their
	// process ids are 327,675. With GPUs a Start has the node's twice: 384 KiB.
	maxRanks = 1<<16 - 1
	// maxStill are the ranks that a Stalled names, 110 bytes and maxLine each: 238 KiB.
	maxStill = 1024
	// maxPeers bounds the addresses that come with a question for a port: 6 bytes each, or 18 for IPv6. Of a job with more of them every
	// machine may come.
	maxPeers = 900_000
)

const (
	// MaxID bounds the ID of a job, and maxJobs are those that are not over, all of which a StopReply or a DrainReply may name: 644 KiB.
	MaxID   = 64
	maxJobs = 10_000
	// maxEnded are the jobs that are over and still known.
	maxEnded = 1000
	// maxTask, maxRules, maxTitle and maxSizes (ranks per node, 3 bytes each) are of a submission: 772 KiB with maxGPUs. The names of its
	// order, which has maxOrder, follow in messages of their own: 12,500 of the longest.
	maxTask  = 512 << 10
	maxRules = verdict.MaxFile
	maxTitle = maxText
	maxSizes = 1 << 16
	maxOrder = 4 << 20
	// maxSpans are the ranks that a reader of logs chooses, 14 bytes each, and maxPositions what a node is told of the files that it has
	// delivered a part of, maxPosition each: 736 KiB. Of further ones it delivers all, and the reader drops what it knows.
	maxSpans     = 1 << 14
	maxPositions = 1 << 14
	maxPosition  = 32
)

// excessOfNode says in words what is too large of a node; it is empty when nothing is.
func excessOfNode(n *pb.Node) string {
	switch size := proto.Size(n); {
	case len(n.GetGpus()) > maxGPUs:
		return fmt.Sprintf("it has %d GPUs, and a node at most %d", len(n.GetGpus()), maxGPUs)
	case size > maxNode:
		return fmt.Sprintf("its description is too long: %d bytes, %d at most, of which %d labels have %d; give it fewer, or shorter ones",
			size, maxNode, len(n.GetLabels()), proto.Size(&pb.Node{Labels: n.GetLabels()}))
	}
	return ""
}

// excess says in words what is too large of a submission; it is empty when nothing is.
func excess(s Submission) string {
	names := 0
	for _, name := range s.Job.Request.Order.List {
		names += len(name) + 4
	}
	for _, part := range []struct {
		what       string
		size, most int
		unit       string
	}{
		{"the command and its --env", len(s.Task), maxTask, "bytes"},
		{"the failure rules", len(s.Job.Rules), maxRules, "bytes"},
		{"the id", len(s.Job.ID), MaxID, "bytes"},
		{fmt.Sprintf("the order's list of %d nodes", len(s.Job.Request.Order.List)), names, maxOrder, "bytes"},
		{"the ranks per node", len(s.Job.Request.PerNode), maxSizes, "numbers"},
		{"the choice of GPUs", len(s.GPUs), maxGPUs, "indexes"},
	} {
		if part.size > part.most {
			return fmt.Sprintf("the job is too large for a cluster: %s: %d %s, %d at most", part.what, part.size, part.unit, part.most)
		}
	}
	for _, m := range fromSubmission(s) {
		if size := proto.Size(m); size > maxMessage {
			return fmt.Sprintf("the job is too large for a cluster: a part of it has %d bytes, %d at most", size, maxMessage)
		}
	}
	return ""
}
