package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// freeing asks whether others than a group hold memory of its GPUs.
type freeing struct {
	// Job is the group, and GPUs are its GPUs' UUIDs, by node.
	Job  string              `json:"job"`
	GPUs map[string][]string `json:"gpus"`
	// Keep is what each other process may have of a GPU, in bytes. Whole is what the GPU may have in use where the driver does not tell whose that
	// is; 0 does not look at it.
	Keep  int64 `json:"keep"`
	Whole int64 `json:"whole"`
	// Within is how long to wait for it, in seconds.
	Within float64 `json:"within"`
}

// holding is memory of a GPU that is in somebody's way. PID is 0 where the driver does not tell whose it is, and Job is empty for a process that is no rank of
// the node's agent.
type holding struct {
	Node  string `json:"node"`
	GPU   string `json:"gpu_uuid"`
	Bytes int64  `json:"bytes"`
	PID   int    `json:"pid"`
	Job   string `json:"job"`
	Rank  int    `json:"rank"`
}

// freed says how many of the GPUs a driver has told of, what is in the way, and which nodes have not said.
type freed struct {
	Checked int       `json:"checked"`
	Held    []holding `json:"held"`
	Missing []string  `json:"missing"`
}

const (
	// freedEvery is the pause between two looks: no event tells that a GPU's memory was freed.
	freedEvery = 200 * time.Millisecond
	// freedAsk bounds the wait for a node that is asked.
	freedAsk = 5 * time.Second
)

// freed looks at the GPUs until nothing is in the way, or the time is over; then it says what is.
func (c *controller) freed(ctx context.Context, f freeing) (freed, error) {
	client, err := c.cluster()
	if err != nil {
		return freed{}, err
	}
	end := time.Now().Add(time.Duration(f.Within * float64(time.Second)))
	limited, cancel := context.WithDeadline(ctx, end.Add(freedAsk))
	defer cancel()
	for {
		found, err := f.look(limited, client)
		if err == nil && len(found.Held)+len(found.Missing) == 0 || errors.Is(err, launcher.ErrNotThere) || time.Until(end) < freedEvery {
			return found, err
		}
		select {
		case <-time.After(freedEvery):
		case <-ctx.Done():
			return freed{}, fmt.Errorf("the memory of GPUs is not looked at any more: %w", ctx.Err())
		}
	}
}

// look asks the nodes once.
func (f freeing) look(ctx context.Context, client *launcher.Client) (freed, error) {
	found := freed{Held: []holding{}, Missing: []string{}}
	silent := maps.Clone(f.GPUs)
	for n, err := range client.GPUs(ctx, f.Job, freedAsk) {
		if err != nil {
			return freed{}, err
		}
		delete(silent, n.Node)
		switch {
		case len(f.GPUs[n.Node]) == 0:
		case n.Missing != "":
			found.Missing = append(found.Missing, n.Missing)
		default:
			checked, held := f.judge(n)
			found.Checked += checked
			found.Held = append(found.Held, held...)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(silent)) {
		found.Missing = append(found.Missing, "node "+node+" has no part in the group any more")
	}
	return found, nil
}

// judge says what is in the way on a node, of how many GPUs.
func (f freeing) judge(n launcher.NodeSamples) (checked int, held []holding) {
	for _, uuid := range f.GPUs[n.Node] {
		whole, told := math.NaN(), false
		for _, s := range n.Series {
			if s.GPU != uuid {
				continue
			}
			bytes := s.Samples[0].GPUMemory
			if s.PID == 0 {
				whole = bytes
				checked++
				continue
			}
			told = told || !math.IsNaN(bytes)
			if bytes > float64(f.Keep) && s.Job != f.Job {
				held = append(held, holding{n.Node, uuid, int64(bytes), s.PID, s.Job, s.Rank})
			}
		}
		if !told && f.Whole > 0 && whole > float64(f.Whole) {
			held = append(held, holding{Node: n.Node, GPU: uuid, Bytes: int64(whole), Rank: -1})
		}
	}
	return checked, held
}
