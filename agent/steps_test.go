package agent

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
)

func TestStepsAreReported(t *testing.T) {
	w := obeying(t, `echo $((7 + RANK)) >$GOLAUNCH_HEARTBEAT_FILE
trap 'echo $((9 + RANK)) >$GOLAUNCH_HEARTBEAT_FILE; exit' TERM; echo up $RANK; while :; do sleep 0.01; done`)
	beats := make(chan time.Time)
	w.hooks.stepTicks = beats
	w.order(startOf(0))
	w.screen.await(t, "up 0")
	for range 2 {
		select {
		case beats <- time.Now():
		case <-time.After(patience):
			t.Fatal("no report was received")
		}
	}
	w.journal.await(t, `"step":7,"ago_seconds":`)
	w.order(job.Stop{Attempt: 0, Grace: patience})
	w.journal.await(t, `"step":9,"ago_seconds":`)
	w.quiet()
}
