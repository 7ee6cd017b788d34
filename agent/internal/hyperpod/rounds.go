package hyperpod

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// rounds are what the nodes of a job agree on, in the job's store. In a round all ranks come to the
// barrier and then run until the first fault. The fault begins the next round. A round has four
// keys: the nodes that have come, how many ranks they have, whether the round has begun to run, and
// why it ended.
//
// A node whose processes restart alone comes to the barrier again, perhaps in a round that has
// already counted the node. The node then counts twice, and the round begins to run before the last
// node has come. The arrival of the last node then counts as a fault.
type rounds struct {
	calls *tcpstore.Client
	world int
}

// prefix keeps these keys apart from the keys of the ranks.
const prefix = "golaunch/hyperpod/"

func key(what string, round int) string { return prefix + what + "/" + strconv.Itoa(round) }

// arrival is what a node writes about itself at the barrier.
type arrival struct {
	Node    int    `json:"node"`
	IP      string `json:"ip"`
	Attempt int    `json:"attempt"`
	// Ranks has the data of each rank of the node that has set data.
	Ranks []rankData `json:"ranks,omitempty"`
	// Saves says that the ranks save checkpoints. Saved is the newest checkpoint that all ranks
	// here have saved.
	Saves bool  `json:"saves,omitempty"`
	Saved *save `json:"saved,omitempty"`
	// First is the first rank of the unit on this node. It distinguishes the units of one node.
	First int `json:"first"`
}

// arrive reports that n ranks of this node are at the barrier. The last ranks to arrive begin the
// round.
func (r rounds) arrive(ctx context.Context, round int, a arrival, n int) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := r.calls.Append(ctx, key("nodes", round), append(text, '\n')); err != nil {
		return err
	}
	count, err := r.calls.Add(ctx, key("ranks", round), int64(n))
	if err != nil || count < int64(r.world) || count-int64(n) >= int64(r.world) {
		return err
	}
	for _, what := range []string{"nodes", "ranks"} { // no node uses the keys of that round any more
		if _, err := r.calls.DeleteKey(ctx, key(what, round-2)); err != nil {
			return err
		}
	}
	if round > 0 {
		if err := r.empty(ctx); err != nil {
			return err
		}
	}
	return r.calls.Set(ctx, key("run", round), []byte("1"))
}

// empty deletes the keys of the previous run. All ranks are at the barrier, so none uses these
// keys. torch uses the same names of keys in each run. It would otherwise find addresses of closed
// connections there.
func (r rounds) empty(ctx context.Context) error {
	keys, err := r.calls.ListKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) {
			continue
		}
		if _, err := r.calls.DeleteKey(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// fault ends a running round.
func (r rounds) fault(ctx context.Context, round int, why string) error {
	return r.calls.Set(ctx, key("fault", round), []byte(why))
}

// event is the beginning or the end of a run.
type event struct {
	round int
	// arrivals are the arrivals of a run that begins, one for each unit of a node; nil at the end
	// of the run.
	arrivals []arrival
}

// watch reports the beginning and the end of each run, beginning with that of round. Ranks that
// arrive now belong to round.
func watch(ctx context.Context, c *tcpstore.Client, round int, tell func(event)) error {
	for ; ; round++ {
		if err := await(ctx, c, key("run", round)); err != nil {
			return err
		}
		arrivals, err := arrived(ctx, c, round)
		if err != nil {
			return err
		}
		tell(event{round: round, arrivals: arrivals})
		if err := await(ctx, c, key("fault", round)); err != nil {
			return err
		}
		tell(event{round: round})
	}
}

// await waits for a key for as long as the context allows, which may be days.
func await(ctx context.Context, c *tcpstore.Client, key string) error {
	for {
		err := c.Wait(ctx, key)
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// newest returns the round to which ranks that arrive now belong. It ends a running round, because
// that round runs without these ranks.
func (r rounds) newest(ctx context.Context, why string) (int, error) {
	for round := 0; ; round++ {
		over, err := r.calls.Check(ctx, key("fault", round))
		if err != nil {
			return 0, err
		}
		if over {
			continue
		}
		runs, err := r.calls.Check(ctx, key("run", round))
		if err != nil || !runs {
			return round, err
		}
		if err := r.fault(ctx, round, why); err != nil {
			return 0, err
		}
	}
}

// arrived reads the newest arrival of each unit of a node.
func arrived(ctx context.Context, c *tcpstore.Client, round int) ([]arrival, error) {
	text, err := c.Get(ctx, key("nodes", round))
	if err != nil {
		return nil, err
	}
	newest := map[int]arrival{}
	for line := range bytes.Lines(text) {
		var a arrival
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("what the nodes say at the barrier: %w", err)
		}
		newest[a.First] = a
	}
	if len(newest) == 0 {
		return nil, errors.New("no node has come to the barrier")
	}
	arrivals := make([]arrival, 0, len(newest))
	for _, a := range newest {
		arrivals = append(arrivals, a)
	}
	slices.SortFunc(arrivals, func(a, b arrival) int { return a.First - b.First })
	return arrivals, nil
}

// restarts returns the number of the run that begins. Each run has a number of its own in a job's
// store.
func restarts(round int, arrivals []arrival) int {
	least := arrivals[0].Attempt
	for _, a := range arrivals {
		least = min(least, a.Attempt)
	}
	return round + least
}

// together returns what the ranks learn about each other.
func together(arrivals []arrival) *jobData {
	job := &jobData{RankIPs: []rankIP{}, Workers: []rankData{}}
	for _, a := range arrivals {
		if n := len(job.RankIPs); n == 0 || job.RankIPs[n-1].Rank != a.Node {
			job.RankIPs = append(job.RankIPs, rankIP{a.Node, a.IP})
		}
		job.Workers = append(job.Workers, a.Ranks...)
	}
	return job
}

// callLimit bounds a call of the store. It is also how long the node with the store may be
// unreachable.
const callLimit = time.Minute
