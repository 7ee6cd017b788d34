package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

// RAS is what the RAS service of a job's NCCL says. It knows about all ranks, whichever is asked.
type RAS struct {
	// NCCL is the version of the rank that was asked; it is empty when none answers, and Why then says why.
	NCCL string `json:"nccl,omitempty"`
	Why  string `json:"why,omitempty"`
	// Communicators counts those of the job, Processes those in them, and Responding those that have answered.
	Communicators int `json:"communicators"`
	Processes     int `json:"processes"`
	Responding    int `json:"responding"`
	// Behind are those that others wait for, 16 at most.
	Behind []Laggard `json:"behind,omitempty"`
}

// Laggard is a process that has started fewer collectives than others, or does not answer them. Host is an IP address.
type Laggard struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Why  string `json:"why"`
}

// String is the report in one line.
func (r RAS) String() string {
	if r.NCCL == "" {
		return r.Why
	}
	text := fmt.Sprintf("%d of %d processes respond (NCCL %s, communicators: %d)", r.Responding, r.Processes, r.NCCL, r.Communicators)
	for i, l := range r.Behind {
		if i == maxLaggards {
			return fmt.Sprintf("%s; and %d more", text, len(r.Behind)-i)
		}
		text += fmt.Sprintf("; process %d at %s is behind: %s", l.PID, l.Host, l.Why)
	}
	return text
}

// maxLaggards bounds those that a line names.
const maxLaggards = 4

// rasLimit bounds the wait for NCCL, above what an agent allows it.
const rasLimit = 20 * time.Second

// RAS asks the NCCL of a job that runs, for 20 s at most. Ask about jobs in trouble: some versions of NCCL have crashed when asked (see
// nccl/dl).
func (c *Client) RAS(ctx context.Context, id string) (RAS, error) {
	ctx, cancel := context.WithTimeout(ctx, rasLimit)
	defer cancel()
	reader, err := c.Logs(ctx, id, LogFilter{RAS: true})
	if err != nil {
		return RAS{}, err
	}
	defer reader.Close()
	chunk, err := reader.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return RAS{Why: "no rank of the job runs"}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return RAS{Why: fmt.Sprintf("no answer in %v", rasLimit)}, nil
	case err != nil:
		return RAS{}, err
	case chunk.Missing != "":
		return RAS{Why: chunk.Missing}, nil
	}
	var r RAS
	if err := json.Unmarshal(chunk.Data, &r); err != nil {
		return RAS{}, fmt.Errorf("what node %s says of NCCL makes no sense: %w; install the same golaunch on all nodes", chunk.Node, err)
	}
	return r, nil
}

// leads says that a node has node rank 0 of a job, and ranks that live.
func (c *Coordinator) leads(node, id string) bool {
	j, _ := c.state.Cluster.Job(id)
	return slices.ContainsFunc(j.Summary.Nodes, func(n job.NodeStatus) bool { return n.NodeRank == 0 && n.Live && n.Node.Name == node })
}
