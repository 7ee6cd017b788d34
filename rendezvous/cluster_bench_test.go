package rendezvous

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// puppet is an agent that reports every order as done. Its ranks keep running, or exit at once.
// heard receives its name whenever it has repeated its reports to a new coordinator.
func puppet(b *testing.B, target string, n placement.Node, exits bool, heard chan<- string) *session.Session {
	s, err := session.Join(b.Context(), session.Options{Target: target, TLS: client1(token, n.Name), Node: n, Warn: func(error) {}})
	if err != nil {
		b.Error(err)
		return nil
	}
	go func() {
		started := map[string]job.Start{}
		for o := range s.Orders() {
			switch do := o.Do.(type) {
			case job.Prepare:
				s.Report(o.Job, job.Prepared{Unit: do.Unit, Attempt: do.Attempt, Port: 4000})
			case job.Reach:
				s.Report(o.Job, job.Reached{Seq: do.Seq})
			case job.Start:
				started[o.Job] = do
				s.Report(o.Job, job.Started{Unit: do.Unit, Attempt: do.Attempt})
				if exits {
					for _, r := range do.Group.Bundles {
						s.Report(o.Job, job.Exited{Unit: do.Unit, Attempt: do.Attempt, Rank: r.Rank, At: time.Now()})
					}
					s.Report(o.Job, job.Stopped{Unit: do.Unit, Attempt: do.Attempt})
				}
			case job.Stop:
				s.Report(o.Job, job.Stopped{Unit: do.Unit, Attempt: do.Attempt})
			case job.Finish:
				delete(started, o.Job)
			case wire.Restate:
				for id, start := range started {
					s.Report(id, wire.Opened{})
					s.Report(id, job.Started{Unit: start.Unit, Attempt: start.Attempt})
				}
				s.Report("", wire.Restated{})
				heard <- n.Name
			}
		}
	}()
	return s
}

func loopback(i, n int) placement.Node {
	node := gpus(i, n)
	node.Addr = netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)})
	return node
}

// BenchmarkTakeover kills a coordinator with 100 or 1,000 agents of 8 ranks each, over loopback and
// mutual TLS. It measures the time from the start of the next coordinator until all agents are back
// and the jobs run.
func BenchmarkTakeover(b *testing.B) {
	for _, c := range []struct{ agents, jobs int }{{100, 1}, {100, 10}, {1000, 1}} {
		b.Run(fmt.Sprintf("agents=%d/jobs=%d", c.agents, c.jobs), func(b *testing.B) { benchmarkTakeover(b, c.agents, c.jobs) })
	}
}

func benchmarkTakeover(b *testing.B, agents, jobs int) {
	dir := b.TempDir()
	addr := "127.0.0.1:0"
	serve := func() (string, func()) {
		store, err := log.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		target, stop := hostOverTLS(b, Config{File: store, Warn: func(err error) { b.Error(err) }}, addr)
		return target, func() {
			stop()
			if err := store.Close(); err != nil {
				b.Error(err)
			}
		}
	}
	target, stop := serve()
	addr = target
	heard := make(chan string, agents)
	sessions := make([]*session.Session, agents)
	var joining sync.WaitGroup
	for i := range agents {
		joining.Go(func() { sessions[i] = puppet(b, target, loopback(i+1, 8), false, heard) })
	}
	joining.Wait()
	c, err := session.Connect(b.Context(), session.ClientOptions{Target: target, TLS: mtls.Client(token, mtls.Identity{})})
	if err != nil {
		b.Fatal(err)
	}
	for i := range jobs {
		w, err := c.Submit(b.Context(), detached(task(fmt.Sprint("job", i), agents/jobs, 8)))
		if err != nil {
			b.Fatal(err)
		}
		runs(b, w)
	}
	var longest time.Duration
	for b.Loop() {
		b.StopTimer()
		stop()
		b.StartTimer()
		at := time.Now()
		_, stop = serve()
		for back := map[string]bool{}; len(back) < agents; {
			back[<-heard] = true
		}
		s, err := c.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(at))
		for _, n := range s.Nodes {
			if n.Silent != 0 {
				b.Fatalf("%s is not back", n.Name)
			}
		}
		for _, j := range s.Jobs {
			if j.Phase != string(job.Running) || j.Attempt != 0 {
				b.Fatalf("%+v", j)
			}
		}
	}
	b.ReportMetric(longest.Seconds(), "s-longest")
	b.StopTimer()
	if err := c.Close(); err != nil {
		b.Error(err)
	}
	for _, s := range sessions {
		joining.Go(func() { s.Close("") })
	}
	joining.Wait()
	stop()
}

// runs waits until a job runs.
func runs(b *testing.B, w *session.Watch) {
	for {
		u, err := w.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if u.Decision != nil && u.Decision.Reason == "attempt 0 runs" {
			w.Close()
			return
		}
	}
}

// BenchmarkSubmit measures the time from a submission to its result, for a job of one rank, over
// loopback and mutual TLS.
func BenchmarkSubmit(b *testing.B) {
	store, err := log.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	target, stop := hostOverTLS(b, Config{File: store, Warn: func(err error) { b.Error(err) }}, "127.0.0.1:0")
	s := puppet(b, target, loopback(1, 1), true, nil)
	c, err := session.Connect(b.Context(), session.ClientOptions{Target: target, TLS: mtls.Client(token, mtls.Identity{})})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		w, err := c.Submit(context.Background(), task(fmt.Sprint("job", i), 1, 1))
		if err != nil {
			b.Fatal(err)
		}
		for over := false; !over; {
			u, err := w.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			over = u.Result != nil
		}
		w.Close()
	}
	s.Close("")
	if err := c.Close(); err != nil {
		b.Error(err)
	}
	stop()
	if err := store.Close(); err != nil {
		b.Error(err)
	}
}
