package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/nccl/dl"
)

const (
	// maxBehind bounds the processes that a report names.
	maxBehind = 16
	// rasLimit is how long one look may wait for NCCL: a rank that is stopped takes the question and does not answer.
	rasLimit = 15 * time.Second
)

// rasWatch remembers what NCCL's RAS service said of a job.
type rasWatch struct {
	// launched are the collectives that all ranks have started, and known says that the service has told.
	launched uint64
	known    bool
}

// asksRAS says that NCCL is worth asking: it knows about the whole job, so one node asks, and only about a job in trouble.
func (w *stallWatch) asksRAS(live []*pulse) bool {
	return w.unit.order.Group.NodeRank == 0 && len(live) > 0 && live[0].ras != "" && all(live, halfway)
}

// ask says whether the job has gone on since it last asked, and which processes are behind the others. It knows neither where nobody
// answers: NCCL before 2.28.7, or a program without it.
func (w *rasWatch) ask(ctx context.Context, live []*pulse) (moved bool, behind []job.Client) {
	addrs := make([]string, len(live))
	for i, p := range live {
		addrs[i] = p.ras
	}
	report, err := askRAS(ctx, addrs)
	if err != nil {
		return false, nil
	}
	launched := uint64(0)
	for _, c := range report.Communicators {
		for _, r := range c.Ranks {
			for _, n := range r.Launched {
				launched += n
			}
		}
	}
	moved = w.known && launched != w.launched
	w.launched, w.known = launched, true
	return moved, allLaggards(report)
}

// askRAS has the report of the first that answers.
func askRAS(ctx context.Context, addrs []string) (report dl.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, rasLimit)
	defer cancel()
	err = errors.New("no rank with a GPU runs on the node")
	for _, addr := range addrs {
		var client *dl.Client
		if client, err = dl.Dial(ctx, addr); err != nil {
			continue
		}
		report, err = client.Report(ctx, time.Second)
		client.Close()
		if err == nil {
			return report, nil
		}
	}
	return dl.Report{}, err
}

// allLaggards are those of all communicators, [maxBehind] at most.
func allLaggards(report dl.Report) (behind []job.Client) {
	for _, c := range report.Communicators {
		behind = append(behind, laggards(c)...)
	}
	return behind[:min(len(behind), maxBehind)]
}

// laggards are the processes of a communicator that have started less than most, or do not answer.
func laggards(c dl.Communicator) (behind []job.Client) {
	most := map[string]uint64{}
	for _, r := range c.Ranks {
		for op, n := range r.Launched {
			most[op] = max(most[op], n)
		}
	}
	for _, r := range c.Ranks {
		for op, n := range most {
			if r.Launched[op] < n {
				behind = append(behind, client(r.Process, fmt.Sprintf("it has started %d %s, and others %d", r.Launched[op], op, n)))
				break
			}
		}
	}
	for _, r := range c.Missing {
		if r.State.Unresponsive || r.State.Dead {
			behind = append(behind, client(r.Process, "its NCCL does not answer the others"))
		}
	}
	if 2*len(behind) > c.Size {
		return nil
	}
	return behind
}

// client names a process as the coordinator knows it.
func client(p dl.Process, why string) job.Client {
	addr, _ := netip.ParseAddr(p.Host) // "unknown" is none, and is nobody's
	return job.Client{Addr: addr.Unmap(), PID: p.PID, Key: why}
}
