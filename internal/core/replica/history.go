package replica

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// maxHistory bounds how many moments of a job are kept. These are the newest moments. maxSummary is
// the bound for a job that ended long ago.
const (
	maxHistory = 64
	maxSummary = 8
)

// remember keeps the outcome of a step of a job, if the outcome was reported to people.
func (j *Record) remember(at time.Time, actions []job.Action, changes []goodput.Change) {
	m, to := report.Moment{At: at, Attempt: j.newest(), Reason: j.Reason}, goodput.Over
	for _, a := range actions {
		if start, starts := a.(job.Start); starts {
			m.Attempt = max(m.Attempt, start.Attempt)
		}
	}
	for _, c := range changes {
		to = max(to, c.To)
		if c.Cause != "" && m.Cause == "" {
			m.Cause, m.Node = c.Cause, c.Node
		}
	}
	m.To = to.String()
	if len(j.History) == maxHistory {
		j.History = slices.Delete(j.History, 0, 1)
	}
	j.History = append(j.History, m)
}

func (j *Record) newest() int {
	if len(j.History) == 0 {
		return -1
	}
	return j.History[len(j.History)-1].Attempt
}
