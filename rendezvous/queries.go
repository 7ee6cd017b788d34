package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// queries are the clients' questions that nodes answer. They belong to the goroutine of Run.
type queries struct {
	c    *Coordinator
	open map[string]*query
}

// query is one client's question, with the answers of nodes. The goroutines of streams use the
// channels answers, done and over. All other fields belong to the goroutine of Run.
type query struct {
	wire.Inquiry
	id string
	// nodes are the nodes that the client chose; if there are none, it asks all nodes.
	nodes map[string]bool
	// job is the job that the question is about. It is nil for a question about nodes.
	job *trackedJob
	// known are the positions up to which the client has read log files, by the node that delivered
	// them. The name "" stands for files that several nodes have.
	known   map[string][]report.LogPosition
	answers chan *pb.Answer
	done    <-chan struct{}
	over    chan struct{}
	// missing says why nodes do not answer.
	missing map[string]*pb.Answer
	// pending are the nodes that have more to deliver. broken says that a delivery failed. The
	// client must then ask anew.
	pending map[string]*pendingAnswer
	broken  bool
	ended   bool
	// limit ends the wait for nodes; nil if there is no limit.
	limit *time.Timer
}

// pendingAnswer says how far a node is with its answer. delivers says that the node has begun to
// deliver. again says that the node must be asked again after this delivery, because the job has
// meanwhile received the node a second time.
type pendingAnswer struct{ delivers, again bool }

// start asks the nodes. The query ends when done is closed.
func (qs *queries) start(i wire.Inquiry, known map[string][]report.LogPosition, done <-chan struct{}) (*query, error) {
	q := &query{
		Inquiry: i, id: rand.Text(), known: known, answers: make(chan *pb.Answer), done: done, over: make(chan struct{}),
		missing: map[string]*pb.Answer{}, pending: map[string]*pendingAnswer{}, nodes: map[string]bool{},
	}
	for _, node := range i.Nodes {
		q.nodes[node] = true
	}
	switch ofNodes := q.About == wire.AboutSamples || q.About == wire.AboutPing; {
	case q.About == wire.AboutNothing:
		return nil, wire.Wrong("the coordinator does not know this question; install the same golaunch on both")
	case q.Job == "" && !ofNodes:
		return nil, wire.Wrong("this question is about a job, and names none")
	case q.Job != "":
		j, err := qs.c.job(q.Job)
		if err != nil {
			return nil, err
		}
		q.job = j
	}
	qs.open[q.id] = q
	for _, node := range qs.targets(q) {
		qs.ask(q, node)
	}
	for node := range q.nodes {
		if q.pending[node] == nil && q.missing[node] == nil {
			q.lacks(node, "has no part in this")
		}
	}
	if q.Within > 0 && !q.Follows() {
		q.limit = time.AfterFunc(q.Within, func() { qs.c.post(func() { q.timedOut() }) })
	}
	q.endIfComplete()
	return q, nil
}

// targets returns the nodes that a question is for.
func (qs *queries) targets(q *query) (targets []string) {
	if q.job == nil {
		for node := range qs.c.members {
			if q.asks(node) {
				targets = append(targets, node)
			}
		}
		return targets
	}
	nodes, leader := map[string]bool{}, ""
	status, _ := qs.c.state.Cluster.Job(q.Job)
	for _, n := range status.Summary.Nodes {
		if n.NodeRank >= 0 {
			nodes[n.Node.Name] = true
		}
		if n.NodeRank == 0 && n.Live {
			leader = n.Node.Name
		}
	}
	if q.About == wire.AboutLogs {
		nodes = q.job.Nodes // every node that the job ever had, for its files
	}
	for node := range nodes {
		if q.asks(node) && (q.About != wire.AboutRAS || node == leader) {
			targets = append(targets, node)
		}
	}
	return targets
}

// asks reports whether the client asks this node.
func (q *query) asks(node string) bool { return len(q.nodes) == 0 || q.nodes[node] }

// ask asks one node. If the node is not connected, agentBack asks it later, provided that answers
// keep coming until then.
func (qs *queries) ask(q *query, node string) {
	if q.ended {
		return
	}
	m := qs.c.members[node]
	switch {
	case m == nil:
		q.lacks(node, "is not there any more")
	case m.stream != nil:
		q.pending[node] = &pendingAnswer{}
		delete(q.missing, node)
		qs.c.sendOrder(m, q.Job, wire.Ask{Question: q.questionFor(node), ID: q.id})
	case q.goesOn():
		q.pending[node] = &pendingAnswer{}
	default:
		q.lacks(node, "is not connected at the moment")
	}
}

// goesOn reports whether answers keep coming, so that a node which is not connected may come back
// in time.
func (q *query) goesOn() bool { return q.Follows() && (q.job == nil || q.job.Result == nil) }

// questionFor returns the question for one node. If the client has read more files than the
// question may name, the node delivers the other files whole, and the client drops what it already
// has.
func (q *query) questionFor(node string) wire.Question {
	question := q.Question
	if question.About == wire.AboutLogs {
		known := slices.Concat(q.known[node], q.known[""])
		question.Logs.From = known[:min(len(known), wire.MaxPositions)]
	}
	return question
}

// lacks notes in missing why a node does not answer. The client reads missing once the query has
// ended.
func (q *query) lacks(node, why string) {
	if q.ended {
		return
	}
	if q.About == wire.AboutLogs {
		why += ": its ranks' output is in its own files"
	}
	q.missing[node] = &pb.Answer{Node: node, Missing: fmt.Sprintf("node %s %s", node, why)}
}

// nodeAssigned asks a node that a job has received, perhaps for the second time.
func (qs *queries) nodeAssigned(j *trackedJob, node string) {
	for _, q := range qs.open {
		switch p := q.pending[node]; {
		case q.job != j || !q.Follows() || !q.asks(node):
		case p != nil:
			p.again = true
		default:
			qs.ask(q, node)
		}
	}
}

// agentBack asks an agent that is new or back for all answers that it is not delivering, because
// the agent may not have received these questions. It asks for samples in any case, because the
// stream that seems to deliver them may be dead.
func (qs *queries) agentBack(m *member) {
	for _, q := range qs.open {
		p := q.pending[m.name]
		switch samples := q.About == wire.AboutSamples && q.goesOn(); {
		case p != nil && (!p.delivers || samples), p == nil && samples && q.job == nil && q.asks(m.name):
			qs.ask(q, m.name)
		}
	}
}

// nodeLost stops waiting for a node.
func (qs *queries) nodeLost(node string) {
	for _, q := range qs.open {
		if q.pending[node] != nil {
			delete(q.pending, node)
			q.lacks(node, "was lost")
			q.endIfComplete()
		}
	}
}

// timedOut stops waiting for all nodes.
func (q *query) timedOut() {
	for node := range q.pending {
		q.lacks(node, fmt.Sprintf("did not answer within %v", q.Within))
	}
	clear(q.pending)
	q.endIfComplete()
}

func (qs *queries) jobEnded(j *trackedJob) {
	for _, q := range qs.open {
		if q.job == j {
			q.endIfComplete()
		}
	}
}

func (q *query) endIfComplete() {
	complete := !q.goesOn() && (len(q.pending) == 0 || q.About == wire.AboutSamples && q.Follows())
	if (complete || q.broken) && !q.ended {
		q.ended = true
		close(q.over)
	}
}

// delivered notes that a node's delivery has ended. After a failure the client must ask anew for
// the logs that it lacks. A node that sends samples is asked again when it is back.
func (qs *queries) delivered(q *query, node string, err error) {
	p := q.pending[node]
	switch {
	case q.ended:
		return
	case err != nil && q.About == wire.AboutLogs:
		q.broken = true
	case err != nil && p != nil && q.goesOn():
		p.delivers = false
		return
	case err != nil:
		q.lacks(node, "did not answer to the end")
	}
	delete(q.pending, node)
	if p != nil && p.again {
		qs.ask(q, node)
	}
	q.endIfComplete()
}

// forget drops a query whose client is gone.
func (qs *queries) forget(q *query) {
	delete(qs.open, q.id)
	if q.limit != nil {
		q.limit.Stop()
	}
}

// Deliver passes a node's answer on as fast as the client reads it.
func (s agentService) Deliver(stream pb.Rendezvous_DeliverServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	conn := server.ConnOf(stream.Context())
	var node string
	var outputs int
	q, err := ask(s.c, func() (*query, error) {
		node = conn.Node
		q := s.c.queries.open[first.GetId()]
		if q == nil || node == "" {
			return nil, status.Error(codes.NotFound, "no client waits for this")
		}
		if p := q.pending[node]; p != nil {
			p.delivers = true
		}
		if q.About == wire.AboutLogs {
			conn.Outputs++
			outputs = conn.Outputs
		}
		return q, nil
	})
	if err != nil {
		return err
	}
	if outputs <= server.MaxOutputs {
		err = q.forward(stream, node)
	} else {
		q.refuseOutput(stream, node)
	}
	s.c.post(func() {
		if outputs > 0 {
			conn.Outputs--
		}
		s.c.queries.delivered(q, node, err)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.Delivered{})
}

// refuseOutput tells a client that a node delivers no further output.
func (q *query) refuseOutput(stream pb.Rendezvous_DeliverServer, node string) {
	why := fmt.Sprintf("node %s sends the output of %d jobs to readers, which is the limit: read this job's in its log files", node, server.MaxOutputs)
	select {
	case q.answers <- &pb.Answer{Node: node, Missing: why}:
	case <-q.over:
	case <-q.done:
	case <-stream.Context().Done():
	}
}

func (q *query) forward(stream pb.Rendezvous_DeliverServer, node string) error {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if msg.GetAnswer() == nil {
			continue
		}
		msg.Answer.Node = node
		select {
		case q.answers <- msg.GetAnswer():
		case <-q.over:
			return nil
		case <-q.done:
			return status.Error(codes.Canceled, "the client is gone")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
