package controller

import (
	"context"
	"errors"
	"time"

	"github.com/golaunch/golaunch/launcher/group"
)

// freeing is a group.MemoryQuery, as the program says it.
type freeing struct {
	Job   string              `json:"job"`
	GPUs  map[string][]string `json:"gpus"`
	Keep  int64               `json:"keep"`
	Whole int64               `json:"whole"`
	// Within is in seconds.
	Within float64 `json:"within"`
}

// holding is a group.GPUMemory.
type holding struct {
	Node  string `json:"node"`
	GPU   string `json:"gpu_uuid"`
	Bytes int64  `json:"bytes"`
	PID   int    `json:"pid"`
	Job   string `json:"job"`
	Rank  int    `json:"rank"`
}

// freed says what is in the way, and of which nodes that is not known, and why.
type freed struct {
	Held    []holding `json:"held"`
	Missing []string  `json:"missing"`
}

// freed looks at the GPUs until nothing is in the way, or the time is over; then it says what is.
func (c *controller) freed(ctx context.Context, f freeing) (freed, error) {
	found := freed{Held: []holding{}, Missing: []string{}}
	client, err := c.cluster()
	if err != nil {
		return found, err
	}
	err = group.Freed(ctx, client, group.MemoryQuery{Job: f.Job, GPUs: f.GPUs, Keep: f.Keep, Whole: f.Whole, Within: time.Duration(f.Within * float64(time.Second))})
	if in, ok := errors.AsType[*group.GPUMemoryError](err); ok {
		for _, h := range in.Held {
			found.Held = append(found.Held, holding(h))
		}
		found.Missing = append(found.Missing, in.Missing...)
		return found, nil
	}
	return found, err
}
