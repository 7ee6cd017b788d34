package rendezvous

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

var (
	logicalAgents = flag.Int("agents", 1000, "agents of BenchmarkLogical")
	logicalRanks  = flag.Int("ranks", 8, "ranks of each")
)

// BenchmarkLogical plays the life of a cluster without connections. It measures the coordinator's
// own work, which is decisions, log and messages, and the memory for its state. Its agents carry
// out orders at once. The metrics of each phase are processor seconds of the coordinator's
// goroutine, messages to agents and their bytes. Elapsed time would mostly measure the agents,
// because they share this process.
func BenchmarkLogical(b *testing.B) {
	b.Run(fmt.Sprintf("%dx%d", *logicalAgents, *logicalRanks), func(b *testing.B) {
		for b.Loop() {
			(&logical{owner: owner{b: b, spent: map[string]time.Duration{}, count: map[string]int{}, ranks: *logicalRanks}}).live(*logicalAgents)
		}
	})
}

type logical struct{ owner }

func (l *logical) live(nodes int) {
	store, err := log.Open(l.b.TempDir())
	if err != nil {
		l.b.Fatal(err)
	}
	before := inUse()
	l.c = NewCoordinator(Config{File: store, Lease: 24 * time.Hour, Warn: func(err error) { l.b.Error(err) }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // so that its processor time can be measured
		_, err := l.c.Run(ctx)
		ended <- errors.Join(err, store.Close())
	}()
	at, dial := wiretest.Pipe()
	go func() { ended <- l.c.ServeClients(at) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			l.b.Error(err)
		}
	}()
	client := clientOf(l.b, dial)
	l.phase("register", func() { l.join(nodes) })
	l.b.ReportMetric((inUse()-before)/float64(nodes), "register-B/agent")
	var starts []job.Start
	l.phase("start", func() {
		s := detached(task("j1", nodes, l.ranks))
		s.BackoffMin, s.BackoffMax = time.Millisecond, time.Millisecond
		l.do("submission", 1, func(int) { l.c.submit(s) })
		starts = l.obey()
	})
	l.b.ReportMetric((inUse()-before)/float64(nodes), "start-B/agent")
	l.phase("failure", func() {
		said := make([][]any, nodes)
		one := nodes / 2
		said[one] = append(said[one], job.Exited{
			Rank: starts[one].Group.Bundles[0].Rank, Exit: report.Exit{Code: 1}, At: now(), Lived: time.Minute, Step: 1, Tail: lastWords,
		})
		l.report("exited", said)
		if again := l.obey(); again[0].Attempt != 1 {
			l.b.Fatalf("attempt %d runs", again[0].Attempt)
		}
	})
	l.phase("status", func() {
		if s, err := client.Status(l.b.Context()); err != nil || len(s.Nodes) != nodes || s.Jobs[0].Ranks != nodes*l.ranks {
			l.b.Errorf("%d nodes, %d jobs, %v", len(s.Nodes), len(s.Jobs), err)
		}
	})
}

// phase measures one phase.
func (l *logical) phase(name string, do func()) {
	before, sent, size := l.own(), l.sent, l.size
	do()
	l.b.ReportMetric((l.own() - before).Seconds(), name+"-cpu-s")
	if n := l.sent - sent; n > 0 {
		l.b.ReportMetric(float64(n), name+"-messages")
		l.b.ReportMetric(float64(l.size-size), name+"-B")
	}
}

// own returns the processor time of the coordinator's goroutine.
func (l *logical) own() time.Duration {
	spent, err := ask(l.c, func() (time.Duration, error) { return used(l.b, unix.RUSAGE_THREAD), nil })
	if err != nil {
		l.b.Fatal(err)
	}
	return spent
}

// inUse returns the memory in use, in bytes.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}
