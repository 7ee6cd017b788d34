package rendezvous

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/golaunch/golaunch/internal/mtls"
)

// BenchmarkJoin is from dialling to Welcome, within one process and over loopback.
func BenchmarkJoin(b *testing.B) {
	secure := mtls.Server(token, mtls.Identity{Job: "j1"})
	run := func(name string, l net.Listener, o Options) {
		b.Run(name, func(b *testing.B) {
			c := NewCoordinator(Config{Warn: func(err error) { b.Error(err) }})
			server := secure
			if o.TLS == nil {
				server = nil
			}
			go c.Serve(l, server)
			go c.Run(context.Background(), one(2))
			for b.Loop() {
				s, err := Join(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close("")
				b.StartTimer()
			}
			c.Cancel(130, "")
			<-c.done
		})
	}
	memory := func(o Options) (net.Listener, Options) {
		l, dial := Pipe()
		o.Target, o.Dial, o.Node = "memory", dial, node(1)
		return l, o
	}
	l, o := memory(Options{})
	run("memory", l, o)
	l, o = memory(Options{TLS: client1(token, "n1")})
	run("memory-tls", l, o)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	run("loopback-tls", tcp, Options{Target: tcp.Addr().String(), TLS: client1(token, "n1"), Node: node(1)})
}

// BenchmarkThousandAgents has 1,000 agents join over loopback and mutual TLS at once, clients on the same cores.
func BenchmarkThousandAgents(b *testing.B) {
	const agents = 1000
	for b.Loop() {
		c, target, _ := head(b, agents+1)
		var wg sync.WaitGroup
		sessions := make([]*Session, agents)
		for i := range agents {
			wg.Go(func() {
				n := node(i + 1)
				var err error
				if sessions[i], err = Join(b.Context(), Options{Target: target, TLS: client1(token, n.Name), Node: n}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		if sum := c.Summary(); len(sum.Nodes) != agents {
			b.Fatal(fmt.Sprint(len(sum.Nodes), " nodes"))
		}
		b.StopTimer()
		for _, s := range sessions {
			wg.Go(func() { s.Close("") })
		}
		wg.Wait()
		b.StartTimer()
	}
	b.ReportMetric(float64(agents)*float64(b.N)/b.Elapsed().Seconds(), "joins/s")
}
