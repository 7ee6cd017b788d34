// Package heldgpus watches the GPUs that other processes held when this node was surveyed, until
// they are free.
package heldgpus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/placement"
)

// Watch says how to watch the GPUs.
type Watch struct {
	// Survey lists the devices of this machine, including devices that CUDA_VISIBLE_DEVICES hides.
	Survey func(context.Context) ([]gpu.Device, error)
	// Freed is called with GPUs that have become free.
	Freed func([]placement.GPU)
	// Warn is called with the reason why a survey failed, when the reason changes.
	Warn func(error)
}

// Held returns the GPUs that are held and that a survey can find again.
func Held(gpus []placement.GPU) (held []placement.GPU) {
	for _, g := range gpus {
		if g.HeldBy != "" && g.UUID != "" {
			held = append(held, g)
		}
	}
	return held
}

// The pauses between surveys double. They begin short, because the driver lists a process for some
// 300 ms after its end. A survey costs some 150 ms. The pauses are long if Run can wait for the end
// of every holder. A survey then finds only holders that live on without their GPU, which is rare.
const (
	shortest = 50 * time.Millisecond
	long     = 30 * time.Second
	longest  = 10 * time.Minute
)

// Run returns when all the held GPUs have become free, or when ctx ends. It surveys them again when
// a holder ends, and after a pause. The pause is short if Run cannot wait for a holder, because the
// holder has ended but is still listed, or may be another container's process.
func (w Watch) Run(ctx context.Context, held []placement.GPU) {
	said := ""
	for pause := shortest; ; {
		devices, err := w.Survey(ctx)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && err != nil {
			w.Warn(err)
		}
		said = text
		free, still, holders := sift(held, devices)
		if len(free) > 0 {
			w.Freed(free)
		}
		if held = still; len(held) == 0 {
			return
		}
		if pause = holders.await(ctx, pause); ctx.Err() != nil {
			return
		}
	}
}

// sift returns which GPUs are free and which are not. For each GPU that is not free it returns a
// holder: the GPU is held at least until the holder ends.
func sift(held []placement.GPU, devices []gpu.Device) (free, still []placement.GPU, holders pids) {
	for _, g := range held {
		i := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == g.UUID })
		switch {
		case i < 0:
			still, holders = append(still, g), append(holders, unknown)
		case len(devices[i].Holders) > 0:
			still, holders = append(still, g), append(holders, devices[i].Holders[0])
		default:
			g.HeldBy = ""
			free = append(free, g)
		}
	}
	return free, still, holders
}

// unknown stands for the holder of a GPU that a survey did not find.
const unknown = -1

// pids are the holders of GPUs.
type pids []int

// await waits until a living holder ends, but at most for the pause. It returns the next pause.
func (p pids) await(ctx context.Context, pause time.Duration) (next time.Duration) {
	ended, all := make(chan struct{}, len(p)), procfs.HostPIDs()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, pid := range p {
		h := procfs.Open(pid)
		defer h.Close() // ends Await
		if !h.Pinned() || !procfs.Alive(pid, func(procfs.Stat) bool { return true }) {
			all = false
			continue
		}
		waiting.Go(func() {
			if h.Await() {
				ended <- struct{}{}
			}
		})
	}
	if all {
		pause = min(max(pause, long), longest)
	} else {
		pause = min(pause, long)
	}
	select {
	case <-ended:
		return shortest
	case <-time.After(pause):
		return 2 * pause
	case <-ctx.Done():
		return 0
	}
}
