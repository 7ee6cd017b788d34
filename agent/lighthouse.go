package agent

import (
	"fmt"

	"github.com/golaunch/golaunch/agent/internal/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

// serveLighthouse serves torchft's lighthouse to the ranks of a replica group. If the ranks already
// run, it uses the port that they know.
func (a *attempt) serveLighthouse() {
	if a.order.World.Groups == 0 || a.setup.err != nil {
		return
	}
	l, err := a.job.listen("127.0.0.1", a.setup.lighthousePort)
	if err != nil {
		a.setup.err = fmt.Errorf("cannot serve torchft's lighthouse: %w", err)
		return
	}
	a.setup.lighthouse = lighthouse.Serve(l, lighthouse.Options{
		Unit: a.order.Unit, Attempt: a.order.Attempt, Report: func(r wire.Replica) { a.job.report(r) }, Warn: a.job.node.Warn,
	})
	a.setup.lighthousePort = a.setup.lighthouse.Port()
}

// answerReplica passes a cohort on to a replica.
func (j *jobOnNode) answerReplica(q wire.Cohort) {
	if a := j.attempts[q.Unit]; a != nil && a.order.Attempt == q.Attempt && a.setup.lighthouse != nil {
		a.setup.lighthouse.Answer(q)
	}
}
