package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/golaunch/golaunch/agent/internal/jobstore"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// keptJob, keptAttempt and keptRank have the facts that the next agent needs to adopt the ranks at
// the keeper. The next agent may be of another version of golaunch, so the names of the fields do
// not change.
type keptJob struct {
	Assignment
	// Endpoint is the directory in which the job's ranks connect.
	Endpoint string `json:",omitempty"`
	// Directory is the directory of the job's workspace.
	Directory string `json:",omitempty"`
	// lock is the keeper's lock of Directory, for the next agent.
	lock *os.File
}

type keptAttempt struct {
	Job   string
	Order job.Start
	// Lighthouse is the port of the lighthouse of a replica group.
	Lighthouse int `json:",omitempty"`
}

type keptRank struct {
	Rank  int
	Since time.Time
	RAS   string
}

// resume adopts what an earlier agent has left at the keeper.
func (m *membership) resume() {
	k := m.starter.Keeper
	if k == nil {
		return
	}
	for id, data := range k.Left.Jobs {
		var kept keptJob
		if err := json.Unmarshal(data, &kept); err != nil {
			m.Warn(fmt.Errorf("stopping the ranks of an earlier agent: this agent does not know their job: %w", err))
			continue
		}
		kept.lock = k.Left.Files[id]
		m.open(id, kept)
	}
	for name, kept := range k.Left.Stores {
		if j := m.jobs[jobstore.JobOf(name)]; j != nil {
			j.stores.Resume(name, kept)
		} else {
			kept.Close()
		}
	}
	m.resumeAttempts(k.Left.Scopes)
}

// resumeAttempts adopts the newest attempt of each unit, and ends the other attempts.
func (m *membership) resumeAttempts(scopes []*keeper.Scope) {
	about := make(map[*keeper.Scope]keptAttempt, len(scopes))
	for _, sc := range scopes {
		var kept keptAttempt
		if err := json.Unmarshal(sc.Data, &kept); err != nil {
			m.Warn(fmt.Errorf("stopping the ranks of an earlier agent: cannot read what they are: %w", err))
		}
		about[sc] = kept
	}
	slices.SortFunc(scopes, func(x, y *keeper.Scope) int { return about[y].Order.Attempt - about[x].Order.Attempt })
	for _, sc := range scopes {
		o := about[sc].Order
		if j := m.jobs[about[sc].Job]; j != nil && j.attempts[o.Unit] == nil {
			j.resume(sc, o, about[sc].Lighthouse)
		} else if err := sc.Close(); err != nil {
			m.fail(err)
		} else {
			sc.Forget()
		}
	}
}

// resume adopts an attempt, and starts its ranks that had not been started.
func (j *jobOnNode) resume(sc *keeper.Scope, o job.Start, lighthouse int) {
	store := j.stores.Of(o.Unit, o.World.Groups > 0)
	store.Resize(o.World.Ranks())
	a := newAttempt(j, o)
	a.setup.lighthousePort = lighthouse
	a.scope, a.halt.ordered, a.former = sc, sc.Stopped, map[int]keeper.Rank{}
	for _, r := range sc.Ranks {
		var kept keptRank
		if err := json.Unmarshal(r.Data, &kept); err != nil {
			j.err = fmt.Errorf("cannot adopt the ranks of an earlier agent: %w", err)
		}
		a.former[kept.Rank] = r
	}
	a.setUp()
	a.setup.proxy = store.ProxyAddr()
	a.serveLighthouse()
	j.begin(a)
}

// resumeRank adopts a rank.
func (a *attempt) resumeRank(b placement.Bundle, r keeper.Rank) (ranks.Rank, error) {
	var kept keptRank
	if err := json.Unmarshal(r.Data, &kept); err != nil {
		return ranks.Rank{}, err
	}
	output, err := a.job.work.Output.Dir.Resume(a.outputOptions(b), r.Files[0], r.Files[1])
	if err != nil {
		return ranks.Rank{}, err
	}
	env := a.command(b, output).Env
	return ranks.Rank{Bundle: b, Process: r.Process, Since: kept.Since, Output: output, RAS: kept.RAS, Env: env}, nil
}
