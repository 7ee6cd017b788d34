package replica

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
)

// maxHistory bounds the moments that are known of a job, the newest ones. maxSummary is the bound
// for a job that has been over for long.
const (
	maxHistory = 64
	maxSummary = 8
)

// Moment is a decision about a job.
type Moment struct {
	At time.Time
	// Attempt is the newest attempt that was started by then; -1 before the first.
	Attempt int
	// To is what the ranks of a unit spend their time on from then on; Over if that did not change.
	To goodput.Use
	// Cause and Node are why the unit was stopped and which node is to blame; empty otherwise.
	Cause, Node string
	Reason      string
}

// remember keeps the outcome of a step of a job, if people were told of it.
func (j *Record) remember(at time.Time, actions []job.Action, changes []goodput.Change) {
	m := Moment{At: at, Attempt: j.newest(), Reason: j.Reason}
	for _, a := range actions {
		if start, starts := a.(job.Start); starts {
			m.Attempt = max(m.Attempt, start.Attempt)
		}
	}
	for _, c := range changes {
		if c.To > m.To {
			m.To = c.To
		}
		if c.Cause != "" && m.Cause == "" {
			m.Cause, m.Node = c.Cause, c.Node
		}
	}
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
