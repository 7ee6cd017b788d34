package launcher

import (
	"context"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
)

// Endpoints are where a controller reaches the ranks of a job whose Ranks.Endpoint is set, by TLS with the cluster's token: HOST:PORT, by node. Nodes that do
// not say so within a limit have none.
func (c *Client) Endpoints(ctx context.Context, job string, within time.Duration) (map[string]string, error) {
	endpoints := map[string]string{}
	for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutEndpoint}}) {
		if err != nil {
			return nil, asked(err)
		}
		if a.Missing == "" {
			endpoints[a.Node] = string(a.Facts)
		}
	}
	return endpoints, nil
}
