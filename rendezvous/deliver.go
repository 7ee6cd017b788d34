package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// delivery is one client's reading of a job's output. chunks and over are between the goroutines of the streams; the rest belongs
// to the coordinator's.
type delivery struct {
	id     string
	run    *run
	filter wire.LogFilter
	// from are the files of which the client knows a part, by the node that has delivered it; of "" are those that several have.
	from    map[string][]wire.LogPosition
	chunks  chan *pb.LogChunk
	done    <-chan struct{}
	over    chan struct{}
	missing map[string]*pb.LogChunk
	// pending are the nodes that have more to deliver. broken says that one did not end well.
	pending map[string]*part
	broken  bool
	ended   bool
}

// part is what one node has to deliver: it does so already, and must be asked again after that, for the job has got it anew.
type part struct{ delivers, again bool }

// read begins a delivery, which ends when done does.
func (c *Coordinator) read(id string, f wire.LogFilter, from map[string][]wire.LogPosition, done <-chan struct{}) (*delivery, error) {
	r, err := c.find(id)
	if err != nil {
		return nil, err
	}
	d := &delivery{
		id: rand.Text(), run: r, filter: f, from: from, chunks: make(chan *pb.LogChunk), done: done, over: make(chan struct{}),
		missing: map[string]*pb.LogChunk{}, pending: map[string]*part{},
	}
	c.deliveries[d.id] = d
	for node := range r.Nodes {
		if !f.RAS || c.leads(node, id) {
			c.readFrom(d, node)
		}
	}
	c.settleDelivery(d)
	return d, nil
}

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
		d.lack(node, "is not there any more: its ranks' output is in its own files")
	case m.link != nil:
		d.pending[node] = &part{}
		delete(d.missing, node)
		c.send(m, wire.FromOrder(wire.Order{Job: d.run.Job.ID, Do: wire.ReadLogs{Filter: d.part(node), ID: d.id}}))
	case d.filter.Follow && d.run.Result == nil:
		d.pending[node] = &part{}
	default:
		d.lack(node, "is not connected at the moment: try again for its ranks' output")
	}
}

// part is what a node is asked for. Of files that are too many to be named it delivers all, and the client drops what it knows.
func (d *delivery) part(node string) wire.LogFilter {
	f := d.filter
	f.From = slices.Concat(d.from[node], d.from[""])
	f.From = f.From[:min(len(f.From), wire.MaxPositions)]
	return f
}

// lack notes what of a node cannot be delivered. Once the delivery has ended, its client reads that.
func (d *delivery) lack(node, why string) {
	if d.ended {
		return
	}
	d.missing[node] = &pb.LogChunk{Node: node, Missing: fmt.Sprintf("node %s %s", node, why)}
}

// readAlso asks a node that a job has got, perhaps again.
func (c *Coordinator) readAlso(r *run, node string) {
	for _, d := range c.deliveries {
		switch p := d.pending[node]; {
		case d.run != r || !d.filter.Follow:
		case p != nil:
			p.again = true
		default:
			c.readFrom(d, node)
		}
	}
}

// readAgain asks an agent that is back for what it does not deliver: it may not have been asked, or not have heard it.
func (c *Coordinator) readAgain(m *member) {
	for _, d := range c.deliveries {
		if p := d.pending[m.name]; p != nil && !p.delivers {
			c.readFrom(d, m.name)
		}
	}
}

// readLost expects nothing more of a node.
func (c *Coordinator) readLost(node string) {
	for _, d := range c.deliveries {
		if d.pending[node] != nil {
			delete(d.pending, node)
			d.lack(node, "was lost: the rest of its ranks' output is in its own files")
			c.settleDelivery(d)
		}
	}
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
	over := len(d.pending) == 0 && (!d.filter.Follow || d.run.Result != nil)
	if (over || d.broken) && !d.ended {
		d.ended = true
		close(d.over)
	}
}

// delivered hears that a node has ended its part. When that was not well, the client must ask anew, for what it has not got.
func (c *Coordinator) delivered(d *delivery, node string, err error) {
	if d.ended {
		return
	}
	d.broken = err != nil
	p := d.pending[node]
	delete(d.pending, node)
	if p != nil && p.again {
		c.readFrom(d, node)
	}
	c.settleDelivery(d)
}

// Deliver passes a node's part on, as fast as the client takes it.
func (s service) Deliver(stream pb.Rendezvous_DeliverServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	p, _ := peer.FromContext(stream.Context())
	conn := p.Addr.(watchedAddr).conn
	var node string
	d, err := ask(s.c, func() (*delivery, error) {
		node = conn.node
		if d := s.c.deliveries[first.GetId()]; d != nil && node != "" {
			if p := d.pending[node]; p != nil {
				p.delivers = true
			}
			return d, nil
		}
		return nil, status.Error(codes.NotFound, "nobody waits for this")
	})
	if err != nil {
		return err
	}
	err = d.pass(stream, node)
	s.c.post(func() { s.c.delivered(d, node, err) })
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.Delivered{})
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
		if msg.GetChunk() == nil {
			continue
		}
		msg.Chunk.Node = node
		select {
		case d.chunks <- msg.GetChunk():
		case <-d.done:
			return status.Error(codes.Canceled, "nobody reads any more")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
