package agent

import (
	"fmt"

	"github.com/golaunch/golaunch/agent/internal/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

// serveLighthouse serves torchft's lighthouse to the ranks of a replica group. If the ranks already
// run, it uses the port that they know.
func (a *attempt) serveLighthouse() {
	if a.order.World.Groups == 0 || a.job.err != nil {
		return
	}
	l, err := a.job.listen("127.0.0.1", a.setup.lighthousePort)
	if err != nil {
		a.setup.lighthouseErr = fmt.Errorf("cannot serve torchft's lighthouse: %w", err)
		return
	}
	a.setup.lighthouse = lighthouse.Serve(l, lighthouse.Options{
		Unit: a.order.Unit, Attempt: a.order.Attempt, Report: func(r wire.Replica) { a.job.report(r) }, Warn: a.job.node.Warn,
	})
	a.setup.lighthousePort = a.setup.lighthouse.Port()
}

// closeLighthouse ends the lighthouse once the ranks have ended.
func (a *attempt) closeLighthouse() {
	if a.setup.lighthouse != nil {
		a.setup.lighthouse.Close()
	}
}

// lighthouseURL returns where the ranks find the lighthouse. It is empty if they have none.
func (a *attempt) lighthouseURL() string {
	if a.setup.lighthouse == nil {
		return ""
	}
	return a.setup.lighthouse.URL()
}

// answerReplica passes a cohort on to a replica.
func (j *jobOnNode) answerReplica(q wire.Cohort) {
	if a := j.attempts[q.Unit]; a != nil && a.order.Attempt == q.Attempt && a.setup.lighthouse != nil {
		a.setup.lighthouse.Answer(q)
	}
}
