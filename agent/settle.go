package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golaunch/golaunch/agent/internal/keeper"
)

// maxLeft bounds the processes that are named.
const maxLeft = 4

// endingSoon is how long what ends with its rank may take for it, such as the processes of a Python
// pool, which see the end of their parent only then.
const endingSoon = time.Second

// settle is for what ranks that have done their work have left running, such as an upload: it may
// go on for a while, and is then asked to end. What is left when it returns is killed with the
// scope.
func (u *unit) settle(scope scope) {
	if u.told() || !u.succeeded() {
		return
	}
	task := u.share.work.Task
	left, err := scope.Linger(max(task.Linger, endingSoon))
	if err == nil && len(left) > 0 && !u.told() {
		u.agent.Say(fmt.Sprintf("%s: the ranks have exited with 0 and left running: %s. SIGTERM now, SIGKILL after %v; --linger gives them time",
			u.agent.session.Node.Name, named(left), task.Grace))
		err = scope.Rest(task.Grace)
	}
	if err != nil && !errors.Is(err, keeper.ErrGone) {
		u.agent.Warn(fmt.Errorf("attempt %d: end what ranks have left running: %w", u.order.Attempt, err))
	}
}

func named(left []string) string {
	text := strings.Join(left[:min(len(left), maxLeft)], ", ")
	if more := len(left) - maxLeft; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// succeeded says that every rank here was started, and has exited with 0.
func (u *unit) succeeded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.all {
		if !r.process.Exit().OK() {
			return false
		}
	}
	return len(u.all) == len(u.order.Group.Bundles)
}
