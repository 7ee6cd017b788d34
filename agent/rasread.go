package agent

import (
	"context"
	"encoding/json"

	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/nccl/dl"
)

// readRAS delivers what the NCCL of a job's ranks says.
func (a *life) readRAS(s *share, ask wire.Ask) {
	var addrs []string
	if s != nil {
		addrs = s.rasAddrs()
	}
	a.reply(ask, once(func(ctx context.Context) (wire.Answer, error) {
		text, err := json.Marshal(rasOfJob(ctx, addrs))
		return wire.Answer{Facts: text}, err
	}))
}

// rasAddrs are where the ranks that live can be asked.
func (s *share) rasAddrs() (addrs []string) {
	for _, u := range s.units {
		u.mu.Lock()
		for _, r := range u.all {
			select {
			case <-r.process.Done():
			default:
				if r.ras != "" {
					addrs = append(addrs, r.ras)
				}
			}
		}
		u.mu.Unlock()
	}
	return addrs
}

func rasOfJob(ctx context.Context, addrs []string) wire.RAS {
	report, err := askRAS(ctx, addrs)
	if err != nil {
		return wire.RAS{Why: err.Error()}
	}
	ras := wire.RAS{NCCL: report.NCCL, Communicators: len(report.Communicators)}
	type process struct {
		host string
		pid  int
	}
	responds := map[process]bool{}
	note := func(p dl.Process, ok bool) {
		at := process{p.Host, p.PID}
		responds[at] = responds[at] || ok
	}
	for _, c := range report.Communicators {
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
	for _, b := range allLaggards(report) {
		ras.Behind = append(ras.Behind, wire.Laggard{Host: b.Addr.String(), PID: b.PID, Why: b.Key})
	}
	return ras
}
