package controller

import (
	"context"
	"errors"
	"time"

	"github.com/golaunch/golaunch/launcher/group"
)

// memoryRequest is a group.MemoryQuery in JSON.
type memoryRequest struct {
	Job   string              `json:"job"`
	GPUs  map[string][]string `json:"gpus"`
	Keep  int64               `json:"keep"`
	Whole int64               `json:"whole"`
	// Within is in seconds.
	Within float64 `json:"within"`
}

// memoryReply lists the memory that is not free, and the nodes that did not answer.
type memoryReply struct {
	Held    []group.GPUMemory `json:"held"`
	Missing []string          `json:"missing"`
}

// freed waits until the GPUs' memory is free, or reports what holds it when the time is over.
func (c *controller) freed(ctx context.Context, f memoryRequest) (memoryReply, error) {
	found := memoryReply{Held: []group.GPUMemory{}, Missing: []string{}}
	client, err := c.cluster()
	if err != nil {
		return found, err
	}
	err = group.Freed(ctx, client, group.MemoryQuery{Job: f.Job, GPUs: f.GPUs, Keep: f.Keep, Whole: f.Whole, Within: time.Duration(f.Within * float64(time.Second))})
	if in, ok := errors.AsType[*group.GPUMemoryError](err); ok {
		found.Held = append(found.Held, in.Held...)
		found.Missing = append(found.Missing, in.Missing...)
		return found, nil
	}
	return found, err
}
