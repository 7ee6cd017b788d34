package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// Span is a range of ranks, both ends included.
type Span struct{ From, To int }

// LogFilter chooses what to read of a job's output.
type LogFilter struct {
	// Ranks are read; all when empty.
	Ranks []Span
	// Attempt is read, or all when it is negative.
	Attempt int
	// Follow goes on until the job is over.
	Follow bool
	// From are the files of which the part before Offset is not wanted.
	From []LogPosition
	// RAS asks for a [RAS] instead, in JSON, of the node that has node rank 0.
	RAS bool
}

// LogPosition is a place in the output of one rank: Stream is 1 for standard output and 2 for standard error, Offset in bytes.
type LogPosition struct {
	Attempt, Rank, Stream int
	Offset                int64
}

// file is the position's file alone.
func (p LogPosition) file() LogPosition {
	p.Offset = 0
	return p
}

// LogChunk is a piece of a rank's output, as the rank wrote it.
type LogChunk struct {
	LogPosition
	Node string
	// WorldSize is that of the attempt; 0 when it is not known any more.
	WorldSize int
	// Data is at most 64 KiB.
	Data []byte
	// Missing says what could not be read, instead of Data.
	Missing string
}

// ReadLogs asks an agent for the output of a job's ranks on its node.
type ReadLogs struct {
	Filter LogFilter

	id     string
	client *grpc.ClientConn
}

// Deliver sends what next returns until that is io.EOF. Another error is told instead of what is missing. Deliver waits for whoever
// reads; its own error says that nobody does any more.
func (r ReadLogs) Deliver(ctx context.Context, next func(context.Context) (LogChunk, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewRendezvousClient(r.client).Deliver(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.Delivery{Id: r.id}); err != nil {
		return err
	}
	for {
		chunk, err := next(stream.Context())
		if errors.Is(err, io.EOF) {
			_, err = stream.CloseAndRecv()
			return err
		}
		if err != nil {
			chunk = LogChunk{Missing: err.Error()}
		}
		if failed := stream.Send(&pb.Delivery{Chunk: fromChunk(chunk)}); failed != nil {
			return failed
		}
		if err != nil {
			_, err = stream.CloseAndRecv()
			return err
		}
	}
}

// delivery is one client's reading of a job's output. chunks and over are between the goroutines of the streams; the rest belongs
// to the coordinator's.
type delivery struct {
	id     string
	run    *run
	filter LogFilter
	// from are the files of which the client knows a part, by the node that has delivered it; of "" are those that several have.
	from    map[string][]LogPosition
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
func (c *Coordinator) read(id string, f LogFilter, from map[string][]LogPosition, done <-chan struct{}) (*delivery, error) {
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
		c.send(m, fromOrder(Order{d.run.Job.ID, ReadLogs{Filter: d.part(node), id: d.id}}))
	case d.filter.Follow && d.run.Result == nil:
		d.pending[node] = &part{}
	default:
		d.lack(node, "is not connected at the moment: try again for its ranks' output")
	}
}

// part is what a node is asked for. Of files that are too many to be named it delivers all, and the client drops what it knows.
func (d *delivery) part(node string) LogFilter {
	f := d.filter
	f.From = slices.Concat(d.from[node], d.from[""])
	f.From = f.From[:min(len(f.From), maxPositions)]
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

// Unread says of an error of Deliver that nobody reads any more, which is nobody's fault.
func Unread(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.Unavailable, codes.NotFound:
		return true
	}
	return errors.Is(err, io.EOF)
}
