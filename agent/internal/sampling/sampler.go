// Package sampling measures a node and its ranks.
package sampling

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/gpulog"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// The sampler looks every idleEvery, and every BusyEvery while a client waits for samples. A rate
// needs two looks.
const (
	idleEvery = 5 * time.Second
	BusyEvery = time.Second
)

// Sampler measures what the ranks of a node do, and the node itself. Its goroutine owns all but the
// table and the fields that mu guards.
type Sampler struct {
	table table
	host  hostMeter
	// gpus keeps the driver open while ranks run; nil otherwise.
	gpus *gpu.Meter
	// xids is nil where this user may not read the kernel log.
	xids *gpulog.XidCounter
	warn func(error)

	mu    sync.Mutex
	gangs map[*gang]bool
	// waiting counts the clients that wait for samples.
	waiting int
	// todo are further tasks for the sampler's goroutine, in order. A rank's exit must not wait for
	// these tasks, because they may read slow files.
	todo []func(now time.Time)
	// last is when the sampler last looked. wake makes it look again, at the earliest BusyEvery
	// after last. looked is closed, and replaced, after each look.
	last   time.Time
	wake   chan struct{}
	looked chan struct{}
}

// New returns a sampler. Run starts it.
func New(warn func(error)) *Sampler {
	xids, _ := gpulog.OpenXids(gpulog.Kmsg) // golaunch doctor reports a log that this user may not read
	return &Sampler{
		host: newHostMeter(), xids: xids, warn: warn, gangs: map[*gang]bool{}, wake: make(chan struct{}, 1), looked: make(chan struct{}),
	}
}

// Run looks until ctx ends.
func (s *Sampler) Run(ctx context.Context) error {
	timer := time.NewTimer(idleEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(s.closeGPUs(), s.xids.Close())
		case <-s.wake:
		case <-timer.C:
		}
		s.runTasks(time.Now())
		if s.pause() <= 0 {
			s.Look(ctx, time.Now())
		}
		timer.Reset(s.pause())
	}
}

// pause returns how long it is until the next look.
func (s *Sampler) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 {
		return BusyEvery - time.Since(s.last)
	}
	return idleEvery - time.Since(s.last)
}

func (s *Sampler) runTasks(now time.Time) {
	s.mu.Lock()
	todo := s.todo
	s.todo = nil
	s.mu.Unlock()
	for _, do := range todo {
		do(now)
	}
}

// later runs a task on the sampler's goroutine.
func (s *Sampler) later(do func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = append(s.todo, do)
	s.wakeUp()
}

func (s *Sampler) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Forget drops the samples of a job whose ranks have all ended.
func (s *Sampler) Forget(job string) { s.later(func(time.Time) { s.table.forget(job) }) }

// Gang is a set of a job's ranks that the sampler measures together.
type Gang struct {
	Job     string
	Attempt int
	Scope   ranks.Scope
	Ranks   []ranks.Rank
	// Looked, if not nil, gets the processes of the ranks at each look. It must not wait.
	Looked func([]proc.Member)
}

// Measure measures ranks. GPUs are those of the node, with their PCI addresses. The caller must
// call stop once the ranks have exited.
func (s *Sampler) Measure(g Gang, gpus []placement.GPU) (stop func()) {
	measured := &gang{Gang: g}
	for _, r := range g.Ranks {
		measured.ranks = append(measured.ranks, &rank{Rank: r, pci: pciOf(r.Bundle.GPU, gpus), stepTime: math.NaN()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gangs[measured] = true
	if s.waiting > 0 {
		s.wakeUp()
	}
	return func() {
		s.mu.Lock()
		delete(s.gangs, measured)
		s.mu.Unlock()
		s.later(func(now time.Time) {
			for _, r := range measured.ranks {
				s.lookLast(measured, r, now)
			}
		})
	}
}

// pciOf returns a GPU's address from the node's list. The coordinator does not send addresses.
func pciOf(of *placement.GPU, gpus []placement.GPU) string {
	for _, g := range gpus {
		if of != nil && g.UUID == of.UUID {
			return g.PCI
		}
	}
	return ""
}

// Look measures everything once.
func (s *Sampler) Look(ctx context.Context, now time.Time) {
	s.mu.Lock()
	gangs := maps.Clone(s.gangs)
	s.last = now
	s.mu.Unlock()
	readings := s.readGPUs(ctx, len(gangs) > 0)
	running := 0
	for g := range gangs {
		running += s.lookAt(g, now, readings)
	}
	node := s.host.read(now)
	node.Ranks = float64(running)
	s.table.add(report.Series{Rank: nodeItself.rank}, report.Sample{At: now, Usage: node})
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.looked)
	s.looked = make(chan struct{})
}

// wait makes the sampler look more often until done is called. If the newest samples are old, the
// sampler looks at once. fresh is closed when new samples exist.
func (s *Sampler) wait() (fresh <-chan struct{}, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.wakeUp()
	fresh = s.looked
	if time.Since(s.last) < BusyEvery {
		now := make(chan struct{})
		close(now)
		fresh = now
	}
	return fresh, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
	}
}

// Hurry makes the sampler look more often until done is called.
func (s *Sampler) Hurry() (done func()) {
	_, done = s.wait()
	return done
}

// Stream returns a function that returns the next samples of a job, or of all jobs if job is "".
// The function first returns the past samples that the filter asks for. After these it returns new
// samples at the filter's interval or, without an interval, [io.EOF]. The caller must call done.
func (s *Sampler) Stream(job string, filter wire.SampleFilter) (next func(context.Context) (wire.Answer, error), done func()) {
	fresh, done := s.wait()
	after, last := time.Now().Add(-filter.Since), time.Time{}
	return func(ctx context.Context) (wire.Answer, error) {
		if !last.IsZero() {
			if filter.Every <= 0 {
				return wire.Answer{}, io.EOF
			}
			select {
			case <-time.After(max(BusyEvery, filter.Every) - time.Since(last)):
			case <-ctx.Done():
				return wire.Answer{}, ctx.Err()
			}
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return wire.Answer{}, ctx.Err()
		}
		s.mu.Lock()
		fresh, last = s.looked, time.Now()
		s.mu.Unlock()
		found := s.table.read(job, after)
		after = last
		return wire.Answer{Samples: &wire.Samples{Now: last, Series: found}}, nil
	}, done
}
