package rendezvous

import (
	"maps"
	"os"
	"strings"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// noted receives a coordinator's notes, in the coordinator's goroutine.
func (s *sim) noted(text string) {
	s.tell("  %s", text)
	if id, _, ok := strings.Cut(strings.TrimPrefix(text, "job "), " is over: "); ok {
		s.buried(id)
		s.mu.Lock()
		s.ended[id] = true
		s.mu.Unlock()
	}
	if name, why, ok := strings.Cut(strings.TrimPrefix(text, "node "), " was lost: "); ok {
		s.lostNode(name, why)
		s.falseLoss(name, why)
	}
}

// falseLoss checks that no node without a fault is counted as lost.
func (s *sim) falseLoss(name, why string) {
	limit := simLease + simKillTime + simLease/3 + time.Minute
	up := time.Since(s.began) - time.Duration(s.since.Load())
	for _, m := range s.machines {
		if d := m.unscathed(); m.node.Name == name && d > limit && up > limit {
			s.fail("%s is counted as lost (%s), and nothing has happened to it for %v", name, why, d)
		}
	}
}

// settle judges the jobs that have ended since the last call.
func (s *sim) settle() {
	synctest.Wait()
	for id, sub := range maps.Clone(s.jobs) {
		if !s.over(id) || !s.up.Load() {
			continue
		}
		r, err := ask(s.hosted.c, func() (*report.Result, error) { return s.hosted.c.jobs[id].Result, nil })
		if err != nil || r == nil {
			s.fail("job %s is over without a result: %v", id, err)
			return
		}
		s.kept(id, *r)
		s.judge(sub.Submission, s.takeovers-sub.takeovers, *r)
		s.ends[ending(*r)]++
		delete(s.jobs, id)
	}
}

// kept checks that a coordinator that starts now would know the published result.
func (s *sim) kept(id string, r report.Result) {
	if s.trio != nil { // internal/wire/quorum's worlds check that voters keep their log
		return
	}
	text, err := os.ReadFile(s.path())
	if err != nil {
		s.fail("%v", err)
		return
	}
	past, err := log.Parse(text)
	if err != nil {
		s.fail("%v", err)
		return
	}
	var entries []replica.Entry
	for _, b := range past.Entries {
		e, err := entry.Read(b)
		if err != nil {
			s.fail("%v", err)
		}
		entries = append(entries, e)
	}
	state, err := replica.Replay(past.Snapshot, entries, nil)
	if err != nil {
		s.fail("the log cannot be read: %v", err)
		return
	}
	if j := state.Jobs[id]; j == nil || j.Result == nil || j.Result.Code != r.Code {
		s.violated("job %s is over, and the log does not say so", id)
	}
}

func (s *sim) over(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id]
}

func ending(r report.Result) string {
	switch {
	case r.Code == 0 && r.Restarts > 0:
		return "success after restarts"
	case r.Code == 0:
		return "success"
	case r.Code == 130:
		return "cancelled"
	case r.Code == 125:
		return "node lost"
	}
	return "rank failed"
}

// quiet mends all faults, and waits until every job has ended. Its limit is, for each restart, the
// longest life of a rank, lease or backoff.
func (s *sim) quiet() {
	s.calm.Store(true)
	s.tell("it is calm from now on")
	for limit := 40; limit > 0 && len(s.jobs) > 0 && !s.failed; limit-- {
		s.pass(simLease)
		s.settle()
	}
	for id := range s.jobs {
		s.fail("job %s does not end in the calm", id)
	}
	for rank, attempt := range s.living(nil) {
		s.fail("attempt %d of rank %d of %s lives after the end", attempt, rank.rank, rank.job)
	}
}
