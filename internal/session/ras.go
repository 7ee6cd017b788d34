package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
)

// rasLimit bounds the wait for NCCL, above what an agent allows it.
const rasLimit = 20 * time.Second

// RAS asks the NCCL of a job that runs, for 20 s at most. Ask about jobs in trouble: some versions of NCCL have crashed when asked (see
// nccl/dl).
func (c *Client) RAS(ctx context.Context, id string) (wire.RAS, error) {
	ctx, cancel := context.WithTimeout(ctx, rasLimit)
	defer cancel()
	reader, err := c.Logs(ctx, id, wire.LogFilter{RAS: true})
	if err != nil {
		return wire.RAS{}, err
	}
	defer reader.Close()
	chunk, err := reader.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return wire.RAS{Why: "no rank of the job runs"}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return wire.RAS{Why: fmt.Sprintf("no answer in %v", rasLimit)}, nil
	case err != nil:
		return wire.RAS{}, err
	case chunk.Missing != "":
		return wire.RAS{Why: chunk.Missing}, nil
	}
	var r wire.RAS
	if err := json.Unmarshal(chunk.Data, &r); err != nil {
		return wire.RAS{}, fmt.Errorf("what node %s says of NCCL makes no sense: %w; install the same golaunch on all nodes", chunk.Node, err)
	}
	return r, nil
}
