package role

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/discovery"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// term is a time in which this process coordinates the job.
type term struct {
	process     *Process
	coordinator *rendezvous.Coordinator
	roster      *roster
	journal     *os.File
	// served gets the error with which the service for commands on this machine ended; nil if there
	// is no service.
	served chan error
	// stopProgress ends the reports of progress. reporting waits for their end, after which ended
	// is set.
	stopProgress func()
	reporting    sync.WaitGroup
	ended        func(report.Ending)
}

// eventsFile is the file of the job's events. A node that takes over the job writes another file,
// with the node's name.
const eventsFile = "events.jsonl"

// newTerm begins the job, or continues it if next is not nil.
func (p *Process) newTerm(r role, next *rendezvous.Term) (*term, error) {
	id, name := p.Coordinator.Job.Job.ID, eventsFile
	if next != nil {
		name = "events-" + r.name + ".jsonl"
	}
	if err := p.Files.Open(id); err != nil {
		return nil, err
	}
	journal, err := p.Files.Dir().Create(name)
	if err != nil {
		return nil, err
	}
	t := &term{process: p, roster: p.Nodes.roster(p.Agent.Warn), journal: journal}
	cfg := p.Coordinator
	cfg.Candidate, cfg.LocalNode, cfg.Term, cfg.Journal, cfg.Joined = r.candidate, r.own, next, journal, t.roster.joined
	cfg.Observe = func(ev job.Event, d report.Decision) {
		t.roster.decided(ev)
		p.Observe(d)
	}
	if next != nil { // the job's nodes have joined an earlier coordinator
		cfg.StartedTogether, cfg.AllNodes, cfg.Nodes = 0, 0, 0
	}
	t.coordinator = rendezvous.NewCoordinator(cfg)
	if p.Nodes.RefuseUnfit {
		t.roster.refuse = func(why string) { t.coordinator.Cancel(125, why) }
	}
	p.leads.Store(t.coordinator)
	t.open(id)
	return t, nil
}

// open serves the commands that this user runs on this machine. If open fails, it warns, and the
// job runs without them.
func (t *term) open(job string) {
	l, err := discovery.Listen(job)
	if err != nil {
		t.process.Agent.Warn(err)
		return
	}
	t.served = make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.stopProgress = cancel
	t.reporting.Go(func() { t.ended = t.process.Progress(ctx) })
	go func() { t.served <- t.coordinator.ServeClients(l) }()
}

// serve admits nodes, and the connections of other candidates, at the listener.
func (t *term) serve(r role) error {
	if r.candidate != nil {
		return r.candidate.Serve(r.listener)
	}
	return t.coordinator.Serve(r.listener, r.tls)
}

// run coordinates until the term or the job ends.
func (t *term) run(ctx context.Context) (report.Result, error) {
	p := t.process
	result, err := t.coordinator.Run(ctx)
	t.roster.end()
	p.leads.CompareAndSwap(t.coordinator, nil)
	if t.served != nil {
		t.stopProgress()
		t.reporting.Wait()
		if err == nil {
			t.ended(result.Ending)
		}
		if failed := <-t.served; failed != nil {
			p.Agent.Warn(failed)
		}
	}
	if failed := t.journal.Close(); failed != nil {
		p.Agent.Warn(fmt.Errorf("cannot finish the journal: %w", failed))
	}
	return result, err
}
