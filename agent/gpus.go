package agent

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/wire"
)

// readGPUs delivers whose memory the GPUs of this node have in use now: what was sampled before may be of another time.
func (a *life) readGPUs(ask wire.Ask) {
	a.reply(ask, once(func(ctx context.Context) (wire.Answer, error) {
		found := make(chan held, 1)
		a.sampler.later(func(time.Time) {
			if ctx.Err() == nil { // else nobody waits any more, and the samples would
				found <- a.sampler.held(a.reading)
			}
		})
		select {
		case h := <-found:
			if h.err != nil {
				return wire.Answer{}, h.err
			}
			text, err := json.Marshal(h.gpus)
			return wire.Answer{Facts: text}, err
		case <-ctx.Done():
			return wire.Answer{}, ctx.Err()
		}
	}))
}

// held is what a driver says of the memory of its GPUs, or why it does not.
type held struct {
	gpus []wire.GPU
	err  error
}

// held asks the driver. No GPU is what a node without a driver has.
func (s *sampler) held(ctx context.Context) (h held) {
	h.gpus = []wire.GPU{}
	s.mu.Lock()
	units := len(s.units)
	s.mu.Unlock()
	if units == 0 {
		return h
	}
	if s.gpus == nil {
		s.gpus = gpu.NewMeter()
	}
	ctx, cancel := context.WithTimeout(ctx, gpuLimit)
	defer cancel()
	readings, err := s.gpus.Read(ctx)
	if err != nil {
		return held{err: err}
	}
	owners := s.owners()
	for _, r := range readings {
		g := wire.GPU{UUID: r.UUID, Used: r.Memory, Total: r.MemoryTotal}
		for _, p := range r.Holders {
			h := wire.GPUHolder{PID: p.PID, Bytes: p.Bytes, Rank: -1}
			switch of, known := owners[p.PID]; {
			case known:
				h.Job, h.Rank = of.Job, of.Rank
			case !hostPIDs():
				h.Bytes = -1
			}
			g.Holders = append(g.Holders, h)
		}
		h.gpus = append(h.gpus, g)
	}
	return h
}

// hostPIDs says that pids here are those of the machine. In a container a driver may tell the machine's, and a rank's own process then seems to be
// a stranger's.
func hostPIDs() bool {
	const initial = "pid:[4026531836]" // PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h
	of, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && of == initial
}

// owners are the ranks that processes belong to.
func (s *sampler) owners() map[int]samples.Subject {
	s.mu.Lock()
	units := maps.Clone(s.units)
	s.mu.Unlock()
	owners := map[int]samples.Subject{}
	for u, w := range units {
		members, err := w.scope.Members()
		if err != nil {
			s.warn(err)
			continue
		}
		leaders := map[int]int{}
		for _, m := range w.ranks {
			leaders[m.process.Pid()] = m.bundle.Rank
		}
		for _, m := range members {
			if rank, ok := leaders[m.Leader]; ok {
				owners[m.PID] = samples.Subject{Job: u.share.job, Rank: rank}
			}
		}
	}
	return owners
}
