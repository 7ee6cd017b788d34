package top

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

const (
	// pingLimit bounds the wait for nodes, and stackLimit the wait for stacks.
	pingLimit, stackLimit = 2 * time.Second, 30 * time.Second
)

// do starts what a key asked for.
func (a *app) do(w want) tea.Cmd {
	switch w {
	case quit:
		return tea.Quit
	case suspend:
		return tea.Suspend
	case wantLog:
		if of, some := a.picture.subject(a.chosen()); some {
			a.follow(of)
		}
	case wantStacks:
		return a.askStacks()
	case wantProbe:
		a.ping(a.chosen().job)
	}
	return nil
}

// follow reads a log, instead of the previous one.
func (a *app) follow(of subject) {
	a.endLog()
	ctx, end := context.WithCancel(a.ctx)
	f := newFollower(of, a.tell)
	a.follower, a.endLog, a.logTop = f, end, -1
	go f.follow(ctx, a.Sources())
}

// nextAttempt continues with the log of a restarted job.
func (a *app) nextAttempt() {
	of := a.follower.subject
	if j := a.picture.Job(of.job); j != nil && j.Attempt > of.attempt && !j.Over() && !of.past {
		of.attempt = j.Attempt
		a.follow(of)
	}
}

func (a *app) askStacks() tea.Cmd {
	j := a.job()
	if j == nil {
		a.stacks = stacks{name: "stacks", err: "no job is chosen", done: true}
		return nil
	}
	id := j.ID
	a.stacks = stacks{name: "stacks of " + id}
	return func() tea.Msg {
		answer := asked{name: "stacks of " + id, done: true}
		err := errNoStacks
		if a.Stacks != nil {
			ctx, cancel := context.WithTimeoutCause(a.ctx, stackLimit, fmt.Errorf("no stacks came within %v", stackLimit))
			defer cancel()
			answer.text, err = a.Stacks(ctx, id)
		}
		if err != nil {
			answer.err = err.Error()
		}
		return answer
	}
}

// prober collects the answers of nodes.
type prober struct {
	mu sync.Mutex
	probe
}

func (p *prober) seen() probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.probe
	now.pongs = slices.Clone(now.pongs)
	return now
}

// ping asks the nodes of a job, or all.
func (a *app) ping(job string) {
	a.endProbe()
	ctx, end := context.WithCancel(a.ctx)
	name := "how fast all nodes answer"
	if job != "" {
		name = "how fast the nodes of " + job + " answer"
	}
	p := &prober{probe: probe{name: name}}
	a.prober, a.endProbe, a.probe = p, end, p.seen()
	go p.run(ctx, a.Sources(), job, a.tell)
}

func (p *prober) run(ctx context.Context, sources []view.Source, job string, news func()) {
	var last error
	for _, source := range sources {
		for pong, err := range source.Ping(ctx, job, pingLimit) {
			if err != nil {
				last = err
				break
			}
			p.add(pong)
			news()
		}
	}
	p.end(last)
	news()
}

func (p *prober) add(pong launcher.Pong) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pongs = append(p.pongs, pong)
}

// end returns no error if a source has answered: of several sources, only one knows a job.
func (p *prober) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done = true; err != nil && len(p.pongs) == 0 {
		p.err = err.Error()
	}
}
