package controller

import (
	"bytes"
	"context"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// inspectRequest asks about the ranks of a group.
type inspectRequest struct {
	Job string `json:"job"`
	// Within is the time limit in seconds, and Width is the width of the table in columns.
	Within float64 `json:"within"`
	Width  int     `json:"width"`
}

func (l inspectRequest) within() time.Duration { return time.Duration(l.Within * float64(time.Second)) }

// workerUsage is what a worker used in its newest sample; unknown values are null.
type workerUsage struct {
	Rank      int      `json:"rank"`
	Node      string   `json:"node"`
	PID       int      `json:"pid"`
	Attempt   int      `json:"attempt"`
	GPU       string   `json:"gpu_uuid"`
	Ended     string   `json:"ended"`
	Does      string   `json:"does"`
	CPUs      *float64 `json:"cpus"`
	Memory    *float64 `json:"memory_bytes"`
	IO        *float64 `json:"io_bytes_per_second"`
	Step      *float64 `json:"step"`
	GPUUse    *float64 `json:"gpu_use"`
	GPUMemory *float64 `json:"gpu_memory_bytes"`
}

type usageReply struct {
	Workers []workerUsage `json:"workers"`
	Missing []string      `json:"missing"`
}

// usage returns the table that golaunch top shows.
func (c *controller) usage(ctx context.Context, l inspectRequest) (usageReply, error) {
	u := usageReply{Workers: []workerUsage{}, Missing: []string{}}
	client, err := c.cluster()
	if err != nil {
		return u, err
	}
	for n, err := range client.Samples(ctx, launcher.SampleQuery{Job: l.Job, Within: l.within()}) {
		if err != nil {
			return u, err
		}
		if n.Missing != "" {
			u.Missing = append(u.Missing, n.Missing)
		}
		for _, s := range n.Series {
			if s.Rank >= 0 && s.Job == l.Job {
				u.Workers = append(u.Workers, usedOf(n.Node, s))
			}
		}
	}
	return u, nil
}

func usedOf(node string, s report.Series) workerUsage {
	u := workerUsage{Rank: s.Rank, Node: node, PID: s.PID, GPU: s.GPU, Does: s.Does}
	if s.Exit != nil {
		u.Ended = s.Exit.String()
	}
	if len(s.Samples) > 0 {
		last := s.Last()
		u.Attempt = last.Attempt
		u.CPUs, u.Memory, u.IO, u.Step = units.OrNil(last.CPUs), units.OrNil(last.Memory), units.OrNil(last.IO), units.OrNil(last.Step)
		u.GPUUse, u.GPUMemory = units.OrNil(last.GPUUse), units.OrNil(last.GPUMemory)
	}
	return u
}

type stacksReply struct {
	Text    string   `json:"text"`
	Missing []string `json:"missing"`
}

func (c *controller) stacks(ctx context.Context, l inspectRequest) (stacksReply, error) {
	client, err := c.cluster()
	if err != nil {
		return stacksReply{}, err
	}
	s, err := client.Stacks(ctx, l.Job, l.within())
	if err != nil {
		return stacksReply{}, err
	}
	var text bytes.Buffer
	err = s.Text(&text, max(l.Width, 80))
	return stacksReply{text.String(), append([]string{}, s.Missing...)}, err
}
