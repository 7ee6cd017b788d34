package tcpstore

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// BenchmarkRoots plays the start of NCCL on nodes of 8 ranks, with the 782 NCCL roots that a job of
// 100,000 ranks has. Each rank waits for the ids of all roots, of 128 bytes each, and then reads
// them. The last rank to arrive sets them. The metrics for the store and its machine come from the
// kernel: connections, and the bytes that the store sends (egress) and receives.
func BenchmarkRoots(b *testing.B) {
	const perNode = 8
	ids, all := roots()
	wait, get := ask(protocol.OpWait).keys(ids).bytes, ask(protocol.OpMultiGet).keys(ids).bytes
	add := ask(protocol.OpAdd).key("count").int(1).bytes
	for _, nodes := range []int{16, 64, 256} {
		n := nodes * perNode
		start := func(i, round int, reply []byte) ([]byte, int) {
			switch {
			case round == 0:
				return greet, 4
			case round == 1:
				return add, 8
			case round == 2 && binary.LittleEndian.Uint64(reply) == uint64(n):
				return slices.Concat(all, wait), 1
			case round == 2:
				return wait, 1
			case round == 3:
				return get, len(ids) * (8 + 128)
			}
			return nil, 0
		}
		for _, proxied := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/proxied=%v", nodes, proxied), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					root, group := torch{}.serve(b)
					c := newCrowd(b, root)
					var links []int
					if proxied {
						proxies := make([]netip.AddrPort, nodes)
						for i := range proxies {
							var link int
							proxies[i], link = proxyOf(b, root)
							links = append(links, link)
						}
						c.near = func(i int) netip.AddrPort { return proxies[i/perNode] }
					}
					idle, before := usage(b, group)
					b.StartTimer()
					c.play(n, start)
					b.StopTimer()
					full, after := usage(b, group)
					if !proxied {
						links = c.fds
					}
					egress, ingress := carried(b, links)
					b.ReportMetric(float64(len(links)), "conns")
					b.ReportMetric(float64(egress)/float64(n), "egress-B/rank")
					b.ReportMetric(float64(ingress)/float64(n), "ingress-B/rank")
					b.ReportMetric(float64((after - before).Milliseconds()), "store-cpu-ms")
					b.ReportMetric(float64(full-idle)/float64(n), "store-B/rank")
					c.leave()
				}
			})
		}
	}
}

// BenchmarkRootsAtFullSize is the store's part of BenchmarkRoots for 100,000 ranks on 12,500 nodes.
// Each node has a connection that speaks as a proxy does.
func BenchmarkRootsAtFullSize(b *testing.B) {
	const nodes = 12500
	ids, all := roots()
	hold := slices.Concat([]byte{protocol.OpHold, 1, 0, 0, 0}, ask(protocol.OpWait).keys(ids).bytes[1:])
	get := slices.Concat([]byte{protocol.OpRound}, make([]byte, 8), ask(protocol.OpMultiGet).keys(ids).bytes[1:])
	const held, ended, found = protocol.HeadLength + 1 + 8, protocol.HeadLength + 5, protocol.HeadLength + 3*8
	for range b.N {
		b.StopTimer()
		root, group := torch{}.serve(b)
		c := newCrowd(b, root)
		idle, before := usage(b, group)
		last := 0
		start := func(i, round int, reply []byte) ([]byte, int) {
			switch {
			case round == 0:
				return []byte(protocol.ProxyGreeting), protocol.HeadLength
			case round == 1:
				return ask(protocol.OpAdd).key("count").int(1).bytes, protocol.HeadLength + 8
			case round == 2 && binary.LittleEndian.Uint64(reply[protocol.HeadLength:]) == nodes:
				full, _ := usage(b, group)
				b.ReportMetric(float64(full-idle)/(1<<20), "store-MiB")
				return slices.Concat(all, hold), held
			case round == 2:
				return hold, held + ended
			case round == 3:
				return get, found + len(ids)*(1+8+128)
			}
			last++
			return nil, 0
		}
		b.StartTimer()
		c.play(nodes, start)
		b.StopTimer()
		_, after := usage(b, group)
		sent, got := carried(b, c.fds)
		b.ReportMetric(float64(last), "conns")
		b.ReportMetric(float64(sent)/1e9, "egress-GB")
		b.ReportMetric(float64(got)/1e9, "ingress-GB")
		b.ReportMetric((after - before).Seconds(), "store-cpu-s")
		c.leave()
	}
}

// roots returns the names of the NCCL roots of a job of 100,000 ranks, one for every 128 ranks as
// in torch, and the requests that set them.
func roots() (ids []string, all []byte) {
	for i := range 782 {
		id := fmt.Sprintf("default_pg/0/UniqueNCCLID:%d", i)
		ids, all = append(ids, id), append(all, setting(id, make([]byte, 128))...)
	}
	return ids, all
}

// carried returns the bytes that were received and sent over connections.
func carried(b *testing.B, fds []int) (came, went uint64) {
	for _, fd := range fds {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		ok(b, err)
		came, went = came+info.Bytes_received, went+info.Bytes_acked
	}
	return came, went
}

// proxyOf serves a proxy in this process, and also returns the proxy's connection to the store.
func proxyOf(b *testing.B, root netip.AddrPort) (netip.AddrPort, int) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ok(b, err)
	s, err := Serve(l, Options{Root: root, Warn: func(err error) { b.Error(err) }})
	ok(b, err)
	b.Cleanup(s.Close)
	link := -1
	s.do(func(l *loop) { link = l.uplink.link.fd })
	return s.Addr(), link
}

// BenchmarkDetour measures how long one client waits for an answer, from the store and through a
// proxy.
func BenchmarkDetour(b *testing.B) {
	root, _ := torch{}.serve(b)
	proxy, _ := torch{}.serveAs(b, root.String())
	for name, at := range map[string]netip.AddrPort{"store": root, "proxy": proxy} {
		c, err := Dial(b.Context(), at, patience)
		ok(b, err)
		defer c.Close()
		ok(b, c.Set(b.Context(), "key", make([]byte, 128)))
		b.Run("Add/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Add(b.Context(), "n", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Get/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Get(b.Context(), "key"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
