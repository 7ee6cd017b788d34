package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/placement"
)

// scope is a [proc.Scope], or a [keeper.Scope] of an agent whose ranks may outlive it.
type scope interface {
	Signal(os.Signal)
	Members() ([]proc.Member, error)
	Stop(sig syscall.Signal, heard bool, grace time.Duration) error
	Linger(limit time.Duration) ([]string, error)
	Rest(grace time.Duration) error
	Kill() error
	Close() error
}

// keptJob, keptUnit, keptRank and the order for a store are what the next agent must know to go on with what it finds at the keeper. Endpoint is the directory of
// that of the job's ranks, which they know.
type keptJob struct {
	Assignment
	Endpoint string `json:",omitempty"`
}

type keptUnit struct {
	Job   string
	Order job.Start
}

type keptRank struct {
	Rank  int
	Since time.Time
	RAS   string
}

// put has the keeper know what was assigned.
func (a *life) put(id string, kept keptJob) {
	data, err := json.Marshal(kept)
	if err != nil {
		panic(fmt.Sprintf("an assignment is no JSON: %v", err)) // bytes and a number
	}
	a.keeper.Put(id, data)
}

// newScope makes a scope; an agent after this one is told about.
func (a *life) newScope(name string, about keptUnit) (scope, error) {
	if a.keeper == nil {
		return a.supervisor.Scope(name)
	}
	data, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	return a.keeper.Scope(name, data)
}

// startIn starts a process; an agent after this one is told about, and given files.
func startIn(in scope, c proc.Command, about keptRank, files ...*os.File) (*proc.Process, error) {
	kept, ok := in.(*keeper.Scope)
	if !ok {
		return in.(*proc.Scope).Start(c)
	}
	data, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	return kept.Start(c, data, files...)
}

func (r rank) start(in scope, c proc.Command) (*proc.Process, error) {
	return startIn(in, c, keptRank{r.bundle.Rank, r.since, r.ras}, r.output.Ends()...)
}

// serveKept has the keeper serve a store where l listens.
func (s *share) serveKept(l net.Listener, o job.Prepare) (store, error) {
	defer l.Close()
	peers := o.Peers
	o.Peers = nil // the keeper has them
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return s.agent.keeper.Serve(s.job, l.(*net.TCPListener), peers, s.agent.session.Node.Addr, data)
}

// regain goes on with what an agent before this one has left at the keeper.
func (a *life) regain() {
	if a.keeper == nil {
		return
	}
	left := a.keeper.Left
	for id, data := range left.Jobs {
		var kept keptJob
		if err := json.Unmarshal(data, &kept); err != nil {
			a.Warn(fmt.Errorf("ranks of an earlier agent end: this one does not know their job: %w", err))
			continue
		}
		a.openAgain(id, kept)
	}
	for id, kept := range left.Stores {
		var o job.Prepare
		if id, proxies := strings.CutSuffix(id, proxySuffix); proxies {
			a.regainProxy(id, kept)
			continue
		}
		s := a.shares[id]
		if err := json.Unmarshal(kept.Data, &o); err != nil || s == nil {
			kept.Close()
			continue
		}
		s.store = kept
		go s.watchStore(kept, o)
	}
	// The newest attempt of a unit comes first.
	units := make(map[*keeper.Scope]keptUnit, len(left.Scopes))
	for _, sc := range left.Scopes {
		var u keptUnit
		if err := json.Unmarshal(sc.Data, &u); err != nil {
			a.Warn(fmt.Errorf("ranks of an earlier agent end: this one does not know what they are: %w", err))
		}
		units[sc] = u
	}
	slices.SortFunc(left.Scopes, func(x, y *keeper.Scope) int { return units[y].Order.Attempt - units[x].Order.Attempt })
	for _, sc := range left.Scopes {
		o := units[sc].Order
		if s := a.shares[units[sc].Job]; s != nil && s.units[o.Unit] == nil {
			s.regain(sc, o)
		} else if err := sc.Close(); err != nil {
			a.fail(err)
		} else {
			sc.Forget()
		}
	}
}

// regain goes on with an attempt; ranks that were not started yet are.
func (s *share) regain(sc *keeper.Scope, o job.Start) {
	s.grown(o.World.WorldSize)
	u := newUnit(s, o)
	u.scope, u.stopped, u.former = sc, sc.Stopped, map[int]keeper.Rank{}
	for _, r := range sc.Ranks {
		var of keptRank
		if err := json.Unmarshal(r.Data, &of); err != nil {
			s.err = fmt.Errorf("cannot go on with the ranks of an earlier agent: %w", err)
		}
		u.former[of.Rank] = r
	}
	u.proxy = s.proxy.addr()
	u.bindings, u.bindErr = s.bind(o.World)
	u.env = s.environment(o.World)
	s.begin(u)
}

// regain goes on with a rank.
func (u *unit) regain(b placement.Bundle, r keeper.Rank) (rank, error) {
	var of keptRank
	if err := json.Unmarshal(r.Data, &of); err != nil {
		return rank{}, err
	}
	output, err := u.share.work.Output.Dir.Resume(u.outputOptions(b), r.Files[0], r.Files[1])
	if err != nil {
		return rank{}, err
	}
	env := u.command(b, output.ErrorFile(), output.NoticeFile(), output.HeartbeatFile()).Env
	return rank{bundle: b, process: r.Process, since: of.Since, output: output, ras: of.RAS, env: env}, nil
}

// forget ends the keeping of an attempt of which nothing lives.
func (u *unit) forget() {
	if kept, ok := u.scope.(*keeper.Scope); ok {
		kept.Forget()
	}
}

// forget ends the keeping of a job that is over here.
func (s *share) forget() {
	if s.agent.keeper == nil {
		return
	}
	for _, u := range s.units {
		u.forget()
	}
	s.agent.keeper.Drop(s.job)
}
