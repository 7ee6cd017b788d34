package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/placement"
)

// Ranks are looked at now and then while nobody asks, and more often while somebody does. Rates need two looks.
const (
	calmEvery  = 5 * time.Second
	askedEvery = time.Second
)

// sampler measures what the ranks of a node do, and the node itself. It belongs to its goroutine, but for what mu guards and the table.
type sampler struct {
	table samples.Table
	host  hostMeter
	// gpus has the driver open while ranks run; nil otherwise, so that it is in nobody's way.
	gpus *gpu.Meter
	// xids has what the kernel says of them; nil where that may not be known.
	xids *xidLog
	warn func(error)

	mu sync.Mutex
	// units are those with ranks, and asked counts who waits for samples.
	units map[*unit]*watched
	asked int
	// todo is what else is to be done to the table, in order: its files may be slow, and nobody must wait for them to end a rank.
	todo []func(now time.Time)
	// last is when the sampler looked. wake has it look again, but not sooner than askedEvery after that: rates need time. news is
	// closed, and replaced, when it has.
	last time.Time
	wake chan struct{}
	news chan struct{}
}

// watched is a unit whose ranks are measured.
type watched struct {
	scope scope
	ranks []*measured
}

// measured is a rank with what it had used when it was looked at last.
type measured struct {
	rank
	// pci is the address of its GPU; empty without one.
	pci  string
	last usageAt
	// stepped is the heartbeat that told the step before, and took how long a step takes since.
	stepped heartbeat
	took    float64
	ended   bool
}

// usageAt is what the processes of a rank had used, at a time; zero before the first look, for a rank may be adopted that has run for days.
type usageAt struct {
	at     time.Time
	cpu    time.Duration
	faults uint64
	io     uint64
}

func newSampler(warn func(error)) *sampler {
	xids, _ := openXids(kmsg) // golaunch doctor says that this user may not read it
	return &sampler{
		host: newHostMeter(), xids: xids, warn: warn, units: map[*unit]*watched{}, wake: make(chan struct{}, 1), news: make(chan struct{}),
	}
}

// run looks until ctx ends.
func (s *sampler) run(ctx context.Context) error {
	timer := time.NewTimer(calmEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(s.closeGPUs(), s.xids.close())
		case <-s.wake:
		case <-timer.C:
		}
		s.tidy(time.Now())
		if s.pause() <= 0 {
			s.look(ctx, time.Now())
		}
		timer.Reset(s.pause())
	}
}

// pause is how long there is nothing to look at.
func (s *sampler) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked > 0 {
		return askedEvery - time.Since(s.last)
	}
	return calmEvery - time.Since(s.last)
}

// tidy does what is to be done.
func (s *sampler) tidy(now time.Time) {
	s.mu.Lock()
	todo := s.todo
	s.todo = nil
	s.mu.Unlock()
	for _, do := range todo {
		do(now)
	}
}

// later has the sampler do something to the table.
func (s *sampler) later(do func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = append(s.todo, do)
	s.rouse()
}

// forget drops what is known of a job, all of whose ranks have ended.
func (s *sampler) forget(job string) { s.later(func(time.Time) { s.table.Forget(job) }) }

// ask has the sampler look more often until done is called, and at once if the newest samples are old. fresh is closed when they are not.
func (s *sampler) ask() (fresh <-chan struct{}, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.rouse()
	fresh = s.news
	if time.Since(s.last) < askedEvery {
		now := make(chan struct{})
		close(now)
		fresh = now
	}
	return fresh, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked--
	}
}

// looked is closed when the sampler has looked again.
func (s *sampler) looked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

func (s *sampler) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// measure takes the ranks of a unit in. Who calls it calls what it returns when they have ended.
func (s *sampler) measure(u *unit, scope scope, ranks []rank) (stop func()) {
	w := &watched{scope: scope}
	for _, r := range ranks {
		w.ranks = append(w.ranks, &measured{rank: r, pci: pciOf(r.bundle.GPU, u.agent.session.Node.GPUs), took: samples.Unknown})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[u] = w
	if s.asked > 0 {
		s.rouse()
	}
	return func() {
		s.mu.Lock()
		delete(s.units, u)
		s.mu.Unlock()
		s.later(func(now time.Time) {
			for _, m := range w.ranks {
				s.end(u, m, now)
			}
		})
	}
}

// pciOf is the address of a GPU among those of this node: the coordinator does not tell it.
func pciOf(of *placement.GPU, here []placement.GPU) string {
	for _, g := range here {
		if of != nil && g.UUID == of.UUID {
			return g.PCI
		}
	}
	return ""
}

// look measures everything once.
func (s *sampler) look(ctx context.Context, now time.Time) {
	s.mu.Lock()
	units := maps.Clone(s.units)
	s.last = now
	s.mu.Unlock()
	readings := s.readGPUs(ctx, len(units) > 0)
	ranks := 0
	for u, w := range units {
		ranks += s.lookAt(u, w, now, readings)
	}
	node := s.host.read(now)
	node[samples.Ranks] = float64(ranks)
	s.table.Add(samples.Node, samples.State{}, samples.Sample{At: now, Values: node})
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}

// lookAt measures the ranks of a unit, and returns how many run.
func (s *sampler) lookAt(u *unit, w *watched, now time.Time, readings map[string]gpu.Reading) (run int) {
	members, err := w.scope.Members()
	if err != nil {
		s.warn(err)
		return 0
	}
	by := map[int][]proc.Member{}
	for _, m := range members {
		by[m.Leader] = append(by[m.Leader], m)
	}
	for _, m := range w.ranks {
		select {
		case <-m.process.Done():
			s.end(u, m, now)
			continue
		default:
		}
		run++
		mine := by[m.process.Pid()]
		state := m.state()
		if mine = busiest(mine, m.process.Pid()); len(mine) > 0 {
			state.Does = does(mine[0])
		}
		v := m.told(now, m.use(mine, now))
		if r, ok := readings[state.GPU]; ok {
			gpuValues(r, &v)
		}
		s.add(u, m, state, now, v)
	}
	return run
}

// end takes the last sample of a rank, once.
func (s *sampler) end(u *unit, m *measured, now time.Time) {
	if m.ended {
		return
	}
	m.ended = true
	state := m.state()
	state.Ended = m.process.Exit().String()
	s.add(u, m, state, now, m.told(now, samples.None()))
}

func (s *sampler) add(u *unit, m *measured, state samples.State, now time.Time, v samples.Values) {
	of := samples.Subject{Job: u.share.job, Rank: m.bundle.Rank}
	v[samples.Xids] = s.xids.of(m.pci)
	s.table.Add(of, state, samples.Sample{At: now, Attempt: u.order.Attempt, Values: v})
}

func (m *measured) state() samples.State {
	state := samples.State{PID: m.process.Pid(), LocalRank: m.bundle.LocalRank}
	if m.bundle.GPU != nil {
		state.GPU = m.bundle.GPU.UUID
	}
	return state
}

// use is what the processes of the rank use, since they were looked at before.
func (m *measured) use(members []proc.Member, now time.Time) samples.Values {
	v := samples.None()
	next := usageAt{at: now}
	memory := uint64(0)
	for _, p := range members {
		next.cpu += p.CPU
		next.faults += p.Faults
		next.io += p.IO
		memory += p.Memory
	}
	v[samples.Processes], v[samples.Memory] = float64(len(members)), float64(memory)
	if span := next.at.Sub(m.last.at).Seconds(); span > 0 && !m.last.at.IsZero() {
		v[samples.CPU] = max(0, (next.cpu-m.last.cpu).Seconds()/span) // a process that ended may have taken its part along
		v[samples.Faults] = max(0, float64(int64(next.faults-m.last.faults))/span)
		v[samples.IO] = max(0, float64(int64(next.io-m.last.io))/span)
	}
	m.last = next
	return v
}

// told adds what the program says of itself: in its heartbeat and its output.
func (m *measured) told(now time.Time, v samples.Values) samples.Values {
	b := lastBeat(m.output)
	if b != (heartbeat{}) {
		v[samples.BeatAge] = max(0, now.Sub(b.at).Seconds())
	}
	if step, ok := b.step(); ok {
		v[samples.Step] = float64(step)
		before, known := m.stepped.step()
		if known && step > before {
			m.took = b.at.Sub(m.stepped.at).Seconds() / float64(step-before)
		}
		if !known || step != before {
			m.stepped = b
		}
		v[samples.StepTime] = m.took
	}
	if total, ok := b.total(); ok {
		v[samples.Total] = float64(total)
	}
	written, lines, last := m.output.Wrote()
	v[samples.LogBytes] = float64(written)
	v[samples.Lines] = float64(lines)
	if last.IsZero() {
		last = m.since
	}
	v[samples.SilenceAge] = max(0, now.Sub(last).Seconds())
	return v
}

// gpuLimit bounds the wait for a driver, behind which all other samples wait.
const gpuLimit = 500 * time.Millisecond

// readGPUs has what the driver says, by UUID; what it does not say stays unknown.
func (s *sampler) readGPUs(ctx context.Context, wanted bool) map[string]gpu.Reading {
	if !wanted {
		if err := s.closeGPUs(); err != nil {
			s.warn(err)
		}
		return nil
	}
	if s.gpus == nil {
		s.gpus = gpu.NewMeter()
	}
	ctx, cancel := context.WithTimeout(ctx, gpuLimit)
	defer cancel()
	devices, err := s.gpus.Read(ctx)
	if err != nil {
		return nil
	}
	readings := make(map[string]gpu.Reading, len(devices))
	for _, r := range devices {
		readings[r.UUID] = r
	}
	return readings
}

func (s *sampler) closeGPUs() error {
	if s.gpus == nil {
		return nil
	}
	meter := s.gpus
	s.gpus = nil
	return meter.Close()
}

func gpuValues(r gpu.Reading, v *samples.Values) {
	known := func(c samples.Column, n uint64) {
		if n > 0 {
			v[c] = float64(n)
		}
	}
	v[samples.GPUUse] = r.Use
	known(samples.GPUMemoryTotal, uint64(r.MemoryTotal))
	if r.MemoryTotal > 0 {
		v[samples.GPUMemory] = float64(r.Memory)
	}
	known(samples.GPUPower, r.Power)
	known(samples.GPUPowerLimit, r.PowerLimit)
	v[samples.GPUPower] /= 1000
	v[samples.GPUPowerLimit] /= 1000
	known(samples.GPUTemperature, uint64(max(0, r.Temperature)))
}
