package view

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// lookBack is the length of the past that Look reads. For maxLookBack ranks, it has about 10 MB
	// of samples.
	lookBack    = 10 * time.Minute
	maxLookBack = 1024
)

// Ranks asks once for the activity of a job's ranks, and waits a limited time for the nodes.
func Ranks(ctx context.Context, s Source, job string, within time.Duration) ([]*Rank, error) {
	return ask(ctx, s, launcher.SampleQuery{Job: job, Within: within})
}

// Look asks once for the activity of a job's ranks, and for the ranks that have been slow recently.
// It does not look for stragglers among very many ranks: only a client that watches, such as
// golaunch top, reads the samples of so many ranks.
func Look(ctx context.Context, s Source, job report.JobStatus, within time.Duration) ([]*Rank, Slow, error) {
	if job.Ranks > maxLookBack || job.Phase != "running" {
		ranks, err := Ranks(ctx, s, job.ID, within)
		return ranks, Slow{Ratio: math.NaN()}, err
	}
	ranks, err := ask(ctx, s, launcher.SampleQuery{Job: job.ID, Since: lookBack, Within: within})
	if err != nil {
		return nil, Slow{}, err
	}
	return ranks, Past(job.Ranks, ranks, time.Now()), nil
}

func ask(ctx context.Context, s Source, q launcher.SampleQuery) ([]*Rank, error) {
	p := newPortion()
	for n, err := range s.Samples(ctx, q) {
		if err != nil {
			return nil, err
		}
		p.take(n, q.Since)
	}
	var all []*Rank
	for _, r := range p.ranks {
		all = append(all, r)
	}
	slices.SortFunc(all, byRank)
	return all, nil
}
