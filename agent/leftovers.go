package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/ranks"
)

// maxNamed bounds the leftover processes that are named.
const maxNamed = 4

// childTime is how long children may take to end after their rank, as the workers of a Python pool
// do, which see the end of their parent only then.
const childTime = time.Second

// endLeftovers is for processes, such as an upload, that ranks have left running when they
// succeeded: they may go on for a while, and are then asked to end. The end of the scope kills what
// is left.
func (a *attempt) endLeftovers(scope ranks.Scope) {
	if a.wasStopped() || !a.succeeded() {
		return
	}
	task := a.job.work.Task
	left, err := scope.Linger(max(task.Linger, childTime))
	if err == nil && len(left) > 0 && !a.wasStopped() {
		a.job.node.Say(fmt.Sprintf("%s: the ranks have exited with 0 and left running: %s. SIGTERM now, SIGKILL after %v; --linger gives them time",
			a.node(), named(left), task.Grace))
		err = scope.Rest(task.Grace)
	}
	if err != nil && !errors.Is(err, keeper.ErrGone) {
		a.job.node.Warn(fmt.Errorf("attempt %d: end what ranks have left running: %w", a.order.Attempt, err))
	}
}

func named(left []string) string {
	text := strings.Join(left[:min(len(left), maxNamed)], ", ")
	if more := len(left) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// succeeded reports whether every rank here was started and has exited with 0.
func (a *attempt) succeeded() bool {
	started := a.started()
	for _, r := range started {
		if !r.Process.Exit().OK() {
			return false
		}
	}
	return len(started) == len(a.order.Group.Bundles)
}
