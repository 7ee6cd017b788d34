package session

import (
	"net/netip"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// maxUnacked bounds the reports that an agent keeps for the coordinator.
const maxUnacked = 1 << 14

// reportQueue has the reports that the coordinator may not have, numbered in order. On the present
// stream, the first reports were sent; sent is their number.
type reportQueue struct {
	unacked []*pb.FromAgent
	sent    int
	// seq is the number of the newest report.
	seq uint64
}

func (q *reportQueue) add(msg *pb.FromAgent) {
	q.seq++
	msg.Seq = q.seq
	q.unacked = append(q.unacked, msg)
}

// next is the first unsent report, or nil.
func (q *reportQueue) next() *pb.FromAgent {
	if q.sent == len(q.unacked) {
		return nil
	}
	return q.unacked[q.sent]
}

// unsent are the reports that were not sent on the present stream.
func (q *reportQueue) unsent() []*pb.FromAgent { return q.unacked[q.sent:] }

// acked forgets the reports up to number n.
func (q *reportQueue) acked(n uint64) {
	for len(q.unacked) > 0 && q.unacked[0].Seq <= n {
		q.unacked = q.unacked[1:]
		q.sent = max(0, q.sent-1)
	}
}

func (q *reportQueue) isFull() bool { return len(q.unacked) > maxUnacked }

// maxPending is how many orders may wait for the agent before the session reads no more.
const maxPending = 64

// orderQueue has the orders that the agent has not taken.
type orderQueue struct {
	orders []wire.Order
	// peers arrived before the next order and are part of it.
	peers []netip.Addr
}

func (q *orderQueue) add(o wire.Order) { q.orders = append(q.orders, o) }

// gather returns the order of a message, with the peers that arrived before it, or nil if the
// message has no order.
func (q *orderQueue) gather(msg *pb.ToAgent, do any) any {
	q.peers, do = wire.Gather(q.peers, msg, do)
	return do
}

// first is the first order, and the channel that takes it; nil while there is none.
func (q *orderQueue) first(orders chan<- wire.Order) (wire.Order, chan<- wire.Order) {
	if len(q.orders) == 0 {
		return wire.Order{}, nil
	}
	return q.orders[0], orders
}

// took forgets the first order.
func (q *orderQueue) took() { q.orders = q.orders[1:] }

func (q *orderQueue) isFull() bool { return len(q.orders) >= maxPending }
