// Package ncclprobe asks NCCL in the ranks of a node how their job is doing.
package ncclprobe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/nccl/dl"
)

const (
	// maxBehind bounds the processes that a report names.
	maxBehind = 16
	// askLimit bounds the wait for NCCL: a stopped rank accepts the question and never answers.
	askLimit = 15 * time.Second
)

// Progress compares NCCL's reports about a job at two times.
type Progress struct {
	// launched counts the collectives that all ranks have started. It is valid if asked is true.
	launched uint64
	asked    bool
}

// Ask reports whether the job has progressed since the last call, and which processes are behind
// the others. It reports neither if no NCCL answers. NCCL before 2.28.7 does not, and some programs
// have no NCCL.
func (p *Progress) Ask(ctx context.Context, addrs []string) (moved bool, behind []job.Client) {
	report, err := ask(ctx, addrs)
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
	moved = p.asked && launched != p.launched
	p.launched, p.asked = launched, true
	return moved, allLaggards(report)
}

// ask returns the report of the first rank that answers.
func ask(ctx context.Context, addrs []string) (report dl.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
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

// allLaggards returns the laggards of all communicators, maxBehind at most.
func allLaggards(report dl.Report) (behind []job.Client) {
	for _, c := range report.Communicators {
		behind = append(behind, laggards(c)...)
	}
	return behind[:min(len(behind), maxBehind)]
}

// laggards returns the processes of a communicator that have started fewer collectives than most,
// or that do not answer.
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
	addr, _ := netip.ParseAddr(p.Host) // "unknown" is no address
	return job.Client{Addr: addr.Unmap(), PID: p.PID, Key: why}
}

// Summary counts the processes of a job that respond, and names the processes that are behind.
func Summary(ctx context.Context, addrs []string) report.RAS {
	said, err := ask(ctx, addrs)
	if err != nil {
		return report.RAS{Why: err.Error()}
	}
	ras := report.RAS{NCCL: said.NCCL, Communicators: len(said.Communicators)}
	type process struct {
		host string
		pid  int
	}
	responds := map[process]bool{}
	note := func(p dl.Process, ok bool) {
		at := process{p.Host, p.PID}
		responds[at] = responds[at] || ok
	}
	for _, c := range said.Communicators {
		for _, r := range c.Ranks {
			note(r.Process, true)
		}
		for _, r := range c.Missing {
			note(r.Process, false)
		}
	}
	for _, ok := range responds {
		ras.Processes++
		if ok {
			ras.Responding++
		}
	}
	for _, b := range allLaggards(said) {
		ras.Behind = append(ras.Behind, report.Laggard{Host: b.Addr.String(), PID: b.PID, Why: b.Key})
	}
	return ras
}
