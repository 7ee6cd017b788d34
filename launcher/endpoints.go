package launcher

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
)

// Endpoints are where a controller reaches the ranks of a job whose Ranks.Endpoint is set, by TLS
// with the cluster's token: HOST:PORT, by node. The error names the nodes that do not say so within
// a limit; the others are there beside it.
func (c *Client) Endpoints(ctx context.Context, job string, within time.Duration) (map[string]string, error) {
	endpoints, missing := map[string]string{}, []string(nil)
	for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutEndpoint}}) {
		if err != nil {
			return endpoints, asked(err)
		}
		if a.Missing != "" {
			missing = append(missing, a.Missing)
			continue
		}
		endpoints[a.Node] = string(a.Facts)
	}
	if n := len(missing); n > 0 {
		return endpoints, fmt.Errorf("%d nodes do not say where their workers are reached: %s", n, strings.Join(missing[:min(n, 8)], "; "))
	}
	return endpoints, nil
}
