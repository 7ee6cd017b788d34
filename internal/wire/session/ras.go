package session

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
)

// rasLimit bounds the wait for NCCL. It exceeds the agent's own limit.
const rasLimit = 20 * time.Second

// RAS asks the NCCL of a running job, for 20 s at most. Ask only about jobs in trouble: some
// versions of NCCL have crashed when asked (see nccl/dl).
func (c *Client) RAS(ctx context.Context, id string) (report.RAS, error) {
	for a, err := range c.Inquire(ctx, wire.Inquiry{Job: id, Question: wire.Question{About: wire.AboutRAS}, Within: rasLimit}) {
		if err != nil {
			return report.RAS{}, err
		}
		if a.Missing != "" {
			return report.RAS{Why: a.Missing}, nil
		}
		var r report.RAS
		if err := json.Unmarshal(a.Facts, &r); err != nil {
			return report.RAS{}, fmt.Errorf("what node %s says of NCCL makes no sense: %w; install the same golaunch on all nodes", a.Node, err)
		}
		return r, nil
	}
	return report.RAS{Why: "no rank of the job runs"}, nil
}
