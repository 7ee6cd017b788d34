package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

const (
	// tcpLimit and ncclLimit bound a test.
	tcpLimit  = 2 * time.Second
	ncclLimit = 20 * time.Second
	// slack is how much later than a test's limit its result may arrive.
	slack = 2 * time.Second
	// helloLimit is how long a node may take to say hello. Over ssh, the nodes start at different
	// times, but within less than this limit.
	helloLimit = 10 * time.Second
	// restLimit is how long a node waits for its next order, while other nodes are tested.
	restLimit = 10 * time.Minute
)

// hello is a node's first message.
type hello struct {
	Name string
	GPUs int
}

// order tells a node what to do next: a test, or to end.
type order struct {
	// Test is the name of the test, the same for both nodes. Peer is the other node; empty for a
	// test of one node alone.
	Test, Peer string
	// First is true for the node that listens, or makes the communicator. The communicator has Size
	// ranks, and this node's ranks begin at Base.
	First      bool
	Base, Size int
	Limit      time.Duration
	End        *Report
}

// outcome is a node's result of a test. Code is the code of a [health.Warnable] if this node itself
// has failed. Echo is true if only the other node has failed.
type outcome struct {
	Figures
	Err, Code string
	Echo      bool
	// Blocked is true if this node does not reach a port of the other. Err then names both nodes.
	Blocked bool
	// Library and File are the version of libnccl and where it is.
	Library, File string
}

// node is one node's part of the test. Only one goroutine uses it.
type node struct {
	Options
	info rankenv.Info
	kind Kind
	addr netip.Addr
	// ports are the ports on which this node may listen.
	ports  ports.Range
	master netip.AddrPort
	store  *tcpstore.Client
}

// rank is the program of each rank of the check. The first rank of a node runs the node's part, and
// the others do nothing.
func rank(o Options) error {
	info, err := rankenv.Current()
	if err != nil || info.LocalRank > 0 {
		return err
	}
	n := node{Options: o, info: info, kind: TCP}
	if n.ports, err = ports.Parse(info.Ports); err != nil {
		return err
	}
	if info.GPUUUID != "" || o.Library != "" { // GPUs without a UUID are only declared and do not exist
		n.kind = NCCL
	}
	parts, ctx := errgroup.WithContext(context.Background())
	if err := n.locate(ctx); err != nil {
		return err
	}
	if n.store, err = tcpstore.Dial(ctx, n.master, restLimit); err != nil {
		return err
	}
	defer n.store.Close()
	if info.Rank == 0 {
		parts.Go(func() error { return lead(ctx, n) })
	}
	parts.Go(func() error { return n.follow(ctx) })
	return parts.Wait()
}

// locate finds the store, and this node's address on the route to it.
func (n *node) locate(ctx context.Context) error {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", n.info.MasterAddr)
	if err != nil {
		return fmt.Errorf("find the store: %w", err)
	}
	n.master = netip.AddrPortFrom(found[0].Unmap(), uint16(n.info.MasterPort))
	var d net.Dialer
	route, err := d.DialContext(ctx, "udp", n.master.String()) // connecting a UDP socket sends nothing
	if err != nil {
		return fmt.Errorf("find the way to the store: %w", err)
	}
	defer route.Close()
	n.addr = route.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	return nil
}

// follow sends the hello and obeys orders until the end.
func (n *node) follow(ctx context.Context) error {
	if err := put(ctx, n.store, helloKey(n.info.NodeRank), hello{n.info.NodeName, n.info.LocalWorldSize}); err != nil {
		return err
	}
	for i := 0; ; i++ {
		var o order
		text, err := n.store.Get(ctx, orderKey(n.info.NodeRank, i))
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return fmt.Errorf("wait for rank 0, at %s, to say what to test: %w", n.info.MasterAddr, err)
		}
		if o.End != nil {
			if n.info.Rank == 0 {
				return nil // lead has printed the report
			}
			return o.End.write(os.Stdout)
		}
		if err := put(ctx, n.store, outcomeKey(n.info.NodeRank, i), n.test(ctx, o)); err != nil {
			return err
		}
	}
}

// errEcho is the cause with which this node's part of a test ends when the other node has failed.
var errEcho = errors.New("the other node failed")

// test runs a test within its limit. A failure also ends the other node's part, which might
// otherwise wait for ever.
func (n *node) test(ctx context.Context, o order) (out outcome) {
	limited, stop := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("no answer within %v", o.Limit))
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	var listening errgroup.Group
	if o.Peer != "" {
		listening.Go(func() error {
			if _, err := n.await(ctx, failureKey(o.Test, !o.First)); err == nil {
				cancel(errEcho)
			}
			return nil
		})
	}
	if n.kind == NCCL {
		out = n.reduceAndProbe(limited, ctx, o)
	} else {
		out = n.probeAndStream(limited, ctx, o)
	}
	out.Echo = errors.Is(context.Cause(ctx), errEcho) && !out.Blocked
	cancel(nil)
	_ = listening.Wait() // it has no error
	if out.Err != "" && o.Peer != "" && !out.Echo {
		if err := n.store.Set(context.Background(), failureKey(o.Test, o.First), nil); err != nil {
			out.Err += "; " + err.Error()
		}
	}
	return out
}

// probeAndStream is a test over TCP.
func (n *node) probeAndStream(limited, ctx context.Context, o order) (out outcome) {
	if o.Peer != "" {
		if err := n.probe(limited, ctx, o, n.ports); err != nil {
			_, out.Blocked = errors.AsType[*blockedError](err)
			out.Err = err.Error()
			return out
		}
	}
	return n.stream(ctx, o)
}

// reduceAndProbe is a test over NCCL. NCCL may use a network of its own, so an unreachable port is
// not a failure itself. If the test fails, its error also names the unreachable port.
func (n *node) reduceAndProbe(limited, ctx context.Context, o order) (out outcome) {
	if o.Peer == "" {
		return n.reduce(ctx, o)
	}
	limited, stop := context.WithTimeoutCause(limited, tcpLimit, fmt.Errorf("no answer within %v", tcpLimit))
	defer stop()
	probing, end := context.WithCancel(ctx)
	defer end()
	probed := make(chan error, 1)
	go func() { probed <- n.probe(limited, probing, o, ports.Range{}) }() // NCCL listens on ports that the kernel chooses
	if out = n.reduce(ctx, o); out.Err == "" {
		stop()
	}
	end()
	if blocked, ok := errors.AsType[*blockedError](<-probed); ok && out.Err != "" {
		out.Err += "; " + blocked.Error()
	}
	return out
}

// await waits for a key while a test runs. It uses a connection of its own, since the node's
// connection is needed meanwhile.
func (n *node) await(ctx context.Context, key string) ([]byte, error) {
	store, err := tcpstore.Dial(ctx, n.master, restLimit)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.Get(ctx, key)
}

// meet waits for the other node's address, the value of a key.
func (n *node) meet(ctx context.Context, o order, key string) (m meeting, err error) {
	text, err := n.await(ctx, key)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("wait for %s to begin: %w", o.Peer, cause(ctx, err))
	}
	return m, nil
}

// These are the keys of the store. A key has the node rank or the name of a test. Each node counts
// its own orders and outcomes from 0.
func helloKey(node int) string      { return fmt.Sprintf("hello/%d", node) }
func orderKey(node, i int) string   { return fmt.Sprintf("order/%d/%d", node, i) }
func outcomeKey(node, i int) string { return fmt.Sprintf("outcome/%d/%d", node, i) }
func meetingKey(test string) string { return "meeting/" + test }
func probeKey(test string, first bool) string {
	return fmt.Sprintf("probe/%s/%t", test, first)
}

func failureKey(test string, first bool) string {
	return fmt.Sprintf("failure/%s/%t", test, first)
}

func put(ctx context.Context, store *tcpstore.Client, key string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = store.Set(ctx, key, text)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}
