package controller

import (
	"context"
	"errors"
	"time"

	"github.com/golaunch/golaunch/launcher/group"
)

// memoryRequest asks to wait until GPU memory is free. Within is in seconds.
type memoryRequest struct {
	group.MemoryQuery
	Within float64 `json:"within"`
}

// memoryReply lists the memory that is not free, and the nodes that did not answer.
type memoryReply struct {
	Held    []group.GPUMemory `json:"held"`
	Missing []string          `json:"missing"`
}

// freed waits until the GPUs' memory is free. If the time limit passes first, it reports the
// processes that hold memory.
func (c *controller) freed(ctx context.Context, f memoryRequest) (memoryReply, error) {
	found := memoryReply{Held: []group.GPUMemory{}, Missing: []string{}}
	client, err := c.cluster()
	if err != nil {
		return found, err
	}
	q := f.MemoryQuery
	q.Within = time.Duration(f.Within * float64(time.Second))
	err = group.Freed(ctx, client, q)
	if in, ok := errors.AsType[*group.GPUMemoryError](err); ok {
		found.Held = append(found.Held, in.Held...)
		found.Missing = append(found.Missing, in.Missing...)
		return found, nil
	}
	return found, err
}
