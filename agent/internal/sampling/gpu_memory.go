package sampling

import (
	"context"
	"maps"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/internal/wire"
)

// GPUMemory returns which processes use the memory of the node's GPUs. It asks the driver now,
// unlike samples, which may be older. It returns no GPU while no rank runs.
func (s *Sampler) GPUMemory(ctx context.Context) ([]wire.GPU, error) {
	type answer struct {
		gpus []wire.GPU
		err  error
	}
	found := make(chan answer, 1)
	s.later(func(time.Time) {
		if ctx.Err() == nil { // without a caller, do not let the driver delay the samples
			gpus, err := s.gpuMemory(ctx)
			found <- answer{gpus, err}
		}
	})
	select {
	case a := <-found:
		return a.gpus, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Sampler) gpuMemory(ctx context.Context) ([]wire.GPU, error) {
	gpus := []wire.GPU{}
	s.mu.Lock()
	gangs := maps.Clone(s.gangs)
	s.mu.Unlock()
	if len(gangs) == 0 {
		return gpus, nil
	}
	readings, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	owners := s.owners(gangs)
	for _, r := range readings {
		g := wire.GPU{UUID: r.UUID, Used: r.Memory, Total: r.MemoryTotal}
		for _, p := range r.Holders {
			h := wire.GPUHolder{PID: p.PID, Bytes: p.Bytes, Rank: -1}
			switch of, known := owners[p.PID]; {
			case known:
				h.Job, h.Rank = of.job, of.rank
			case !procfs.HostPIDs(): // a rank's own process may look like a stranger's
				h.Bytes = -1
			}
			g.Holders = append(g.Holders, h)
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

// owners maps each process of a rank to the rank.
func (s *Sampler) owners(gangs map[*gang]bool) map[int]subject {
	owners := map[int]subject{}
	for g := range gangs {
		members, err := g.Scope.Members()
		if err != nil {
			s.warn(err)
			continue
		}
		leaders := map[int]int{}
		for _, r := range g.ranks {
			leaders[r.Process.Pid()] = r.Bundle.Rank
		}
		for _, m := range members {
			if rank, ok := leaders[m.Leader]; ok {
				owners[m.PID] = subject{g.Job, rank}
			}
		}
	}
	return owners
}

// gpuLimit bounds the wait for the driver. The wait delays all other samples.
const gpuLimit = 500 * time.Millisecond

// readGPUs returns the driver's readings by UUID. A value that the driver does not provide stays
// unknown.
func (s *Sampler) readGPUs(ctx context.Context, wanted bool) map[string]gpu.Reading {
	if !wanted {
		if err := s.closeGPUs(); err != nil {
			s.warn(err)
		}
		return nil
	}
	devices, err := s.read(ctx)
	if err != nil {
		return nil
	}
	readings := make(map[string]gpu.Reading, len(devices))
	for _, r := range devices {
		readings[r.UUID] = r
	}
	return readings
}

func (s *Sampler) read(ctx context.Context) ([]gpu.Reading, error) {
	if s.gpus == nil {
		s.gpus = gpu.NewMeter()
	}
	ctx, cancel := context.WithTimeout(ctx, gpuLimit)
	defer cancel()
	return s.gpus.Read(ctx)
}

func (s *Sampler) closeGPUs() error {
	if s.gpus == nil {
		return nil
	}
	meter := s.gpus
	s.gpus = nil
	return meter.Close()
}
