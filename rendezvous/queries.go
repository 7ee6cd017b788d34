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

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// delivery is what nodes answer to one client. answers and over are between the goroutines of the streams; the rest belongs to the
// coordinator's.
type delivery struct {
	wire.Inquiry
	id string
	// chosen are the inquiry's nodes.
	chosen map[string]bool
	// run is the job that the question is about; nil when it is about the nodes.
	run *run
	// from are the log files of which the client knows a part, by the node that has delivered it; of "" are those that several have.
	from    map[string][]wire.LogPosition
	answers chan *pb.Answer
	done    <-chan struct{}
	over    chan struct{}
	missing map[string]*pb.Answer
	// pending are the nodes that have more to deliver. broken says that one did not end well, whose part the client must ask for anew.
	pending map[string]*part
	broken  bool
	ended   bool
	// limit ends the wait for nodes; nil where there is none.
	limit *time.Timer
}

// part is what one node has to deliver: it does so already, and must be asked again after that, for the job has got it anew.
type part struct{ delivers, again bool }

// inquire begins a delivery, which ends when done does.
func (c *Coordinator) inquire(q wire.Inquiry, from map[string][]wire.LogPosition, done <-chan struct{}) (*delivery, error) {
	d := &delivery{
		Inquiry: q, id: rand.Text(), from: from, answers: make(chan *pb.Answer), done: done, over: make(chan struct{}),
		missing: map[string]*pb.Answer{}, pending: map[string]*part{}, chosen: map[string]bool{},
	}
	for _, node := range q.Nodes {
		d.chosen[node] = true
	}
	switch ofNodes := q.About == wire.AboutSamples || q.About == wire.AboutPing; {
	case q.About == wire.AboutNothing:
		return nil, wire.Wrong("the coordinator does not know this question; install the same golaunch on both")
	case q.Job == "" && !ofNodes:
		return nil, wire.Wrong("this question is about a job, and names none")
	case q.Job != "":
		r, err := c.find(q.Job)
		if err != nil {
			return nil, err
		}
		d.run = r
	}
	c.deliveries[d.id] = d
	for node := range c.nodesOf(d) {
		c.readFrom(d, node)
	}
	for node := range d.chosen {
		if d.pending[node] == nil && d.missing[node] == nil {
			d.lack(node, "has no part in this")
		}
	}
	if q.Within > 0 && !q.Follows() {
		d.limit = time.AfterFunc(q.Within, func() { c.post(func() { c.readLate(d) }) })
	}
	c.settleDelivery(d)
	return d, nil
}

// nodesOf are those that a question is for.
func (c *Coordinator) nodesOf(d *delivery) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if d.run == nil {
			for node := range c.members {
				if d.asks(node) && !yield(node) {
					return
				}
			}
			return
		}
		nodes := d.run.Nodes // that it ever had, for their files
		if d.About != wire.AboutLogs {
			nodes = c.placed(d.Job)
		}
		for node := range nodes {
			if d.asks(node) && (d.About != wire.AboutRAS || c.leads(node, d.Job)) && !yield(node) {
				return
			}
		}
	}
}

// placed are the nodes that a job has now.
func (c *Coordinator) placed(id string) map[string]bool {
	j, _ := c.state.Cluster.Job(id)
	nodes := map[string]bool{}
	for _, n := range j.Summary.Nodes {
		if n.NodeRank >= 0 {
			nodes[n.Node.Name] = true
		}
	}
	return nodes
}

// asks says that a node is among those that the client chose.
func (d *delivery) asks(node string) bool { return len(d.chosen) == 0 || d.chosen[node] }

// leads says that a node has node rank 0 of a job, and ranks that live.
func (c *Coordinator) leads(node, id string) bool {
	j, _ := c.state.Cluster.Job(id)
	return slices.ContainsFunc(j.Summary.Nodes, func(n job.NodeStatus) bool { return n.NodeRank == 0 && n.Live && n.Node.Name == node })
}

// readFrom asks one node for its part. One that is not connected is asked when it is back, if there is time for that.
func (c *Coordinator) readFrom(d *delivery, node string) {
	if d.ended {
		return
	}
	m := c.members[node]
	switch {
	case m == nil:
		d.lack(node, "is not there any more")
	case m.link != nil:
		d.pending[node] = &part{}
		delete(d.missing, node)
		c.send(m, wire.FromOrder(wire.Order{Job: d.Job, Do: wire.Ask{Question: d.part(node), ID: d.id}}))
	case d.goesOn():
		d.pending[node] = &part{}
	default:
		d.lack(node, "is not connected at the moment")
	}
}

// goesOn says that there will be further answers, and that a node which is not there may come back in time.
func (d *delivery) goesOn() bool { return d.Follows() && (d.run == nil || d.run.Result == nil) }

// part is what a node is asked for. Of files that are too many to be named it delivers all, and the client drops what it knows.
func (d *delivery) part(node string) wire.Question {
	q := d.Question
	if q.About == wire.AboutLogs {
		from := slices.Concat(d.from[node], d.from[""])
		q.Logs.From = from[:min(len(from), wire.MaxPositions)]
	}
	return q
}

// lack notes why a node does not answer. Once the delivery has ended, its client reads that.
func (d *delivery) lack(node, why string) {
	if d.ended {
		return
	}
	if d.About == wire.AboutLogs {
		why += ": its ranks' output is in its own files"
	}
	d.missing[node] = &pb.Answer{Node: node, Missing: fmt.Sprintf("node %s %s", node, why)}
}

// readAlso asks a node that a job has got, perhaps again.
func (c *Coordinator) readAlso(r *run, node string) {
	for _, d := range c.deliveries {
		switch p := d.pending[node]; {
		case d.run != r || !d.Follows() || !d.asks(node):
		case p != nil:
			p.again = true
		default:
			c.readFrom(d, node)
		}
	}
}

// readAgain asks an agent that is new, or back, for what it does not deliver: it may not have been asked, or not have heard it. What it
// measures it says again, for the old connection may seem to live.
func (c *Coordinator) readAgain(m *member) {
	for _, d := range c.deliveries {
		p := d.pending[m.name]
		switch measures := d.About == wire.AboutSamples && d.goesOn(); {
		case p != nil && (!p.delivers || measures), p == nil && measures && d.run == nil && d.asks(m.name):
			c.readFrom(d, m.name)
		}
	}
}

// readLost expects nothing more of a node.
func (c *Coordinator) readLost(node string) {
	for _, d := range c.deliveries {
		if d.pending[node] != nil {
			delete(d.pending, node)
			d.lack(node, "was lost")
			c.settleDelivery(d)
		}
	}
}

// readLate expects nothing more of any node.
func (c *Coordinator) readLate(d *delivery) {
	for node := range d.pending {
		d.lack(node, fmt.Sprintf("did not answer within %v", d.Within))
	}
	clear(d.pending)
	c.settleDelivery(d)
}

// readEnd lets deliveries end with their job.
func (c *Coordinator) readEnd(r *run) {
	for _, d := range c.deliveries {
		if d.run == r {
			c.settleDelivery(d)
		}
	}
}

func (c *Coordinator) settleDelivery(d *delivery) {
	over := !d.goesOn() && (len(d.pending) == 0 || d.About == wire.AboutSamples && d.Follows())
	if (over || d.broken) && !d.ended {
		d.ended = true
		close(d.over)
	}
}

// delivered hears that a node has ended its part. When that was not well, the client must ask anew for the logs that it has not got; a node
// that measures on is asked when it is back.
func (c *Coordinator) delivered(d *delivery, node string, err error) {
	p := d.pending[node]
	switch {
	case d.ended:
		return
	case err != nil && d.About == wire.AboutLogs:
		d.broken = true
	case err != nil && p != nil && d.goesOn():
		p.delivers = false
		return
	case err != nil:
		d.lack(node, "did not answer to the end")
	}
	delete(d.pending, node)
	if p != nil && p.again {
		c.readFrom(d, node)
	}
	c.settleDelivery(d)
}

// forgetDelivery drops what nobody reads any more.
func (c *Coordinator) forgetDelivery(d *delivery) {
	delete(c.deliveries, d.id)
	if d.limit != nil {
		d.limit.Stop()
	}
}

// Deliver passes a node's part on, as fast as the client takes it.
func (s agentService) Deliver(stream pb.Rendezvous_DeliverServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	conn := server.ConnOf(stream.Context())
	var node string
	var outputs int
	d, err := ask(s.c, func() (*delivery, error) {
		node = conn.Node
		d := s.c.deliveries[first.GetId()]
		if d == nil || node == "" {
			return nil, status.Error(codes.NotFound, "nobody waits for this")
		}
		if p := d.pending[node]; p != nil {
			p.delivers = true
		}
		if d.About == wire.AboutLogs {
			conn.Outputs++
			outputs = conn.Outputs
		}
		return d, nil
	})
	if err != nil {
		return err
	}
	if outputs <= server.MaxOutputs {
		err = d.pass(stream, node)
	} else {
		d.full(stream, node)
	}
	s.c.post(func() {
		if outputs > 0 {
			conn.Outputs--
		}
		s.c.delivered(d, node, err)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.Delivered{})
}

// full tells a client that a node delivers no further output.
func (d *delivery) full(stream pb.Rendezvous_DeliverServer, node string) {
	why := fmt.Sprintf("node %s delivers the output of %d jobs to their readers, and of no more at a time: this job's is in its own files", node, server.MaxOutputs)
	select {
	case d.answers <- &pb.Answer{Node: node, Missing: why}:
	case <-d.over:
	case <-d.done:
	case <-stream.Context().Done():
	}
}

func (d *delivery) pass(stream pb.Rendezvous_DeliverServer, node string) error {
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
		case d.answers <- msg.GetAnswer():
		case <-d.over:
			return nil
		case <-d.done:
			return status.Error(codes.Canceled, "nobody reads any more")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
