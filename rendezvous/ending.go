package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// end says why a coordinator ends. Either the only job is over and the log has stored its end, or
// this process does not lead any more.
type end struct {
	finished bool
	deposed  error
}

// Cancel ends the only job with an exit code and a reason. A second call kills the ranks.
func (c *Coordinator) Cancel(code int, why string) { c.Stop(job.Cancel{Code: code, Why: why}) }

// Stop ends the only job.
func (c *Coordinator) Stop(ev job.Cancel) {
	c.post(func() {
		if c.onlyJob != nil {
			c.applyJobEvent(c.onlyJob, ev)
		}
	})
}

// Cancelled returns the event by which the end of a context ends a job: with code 124 after a
// deadline, and with 130 otherwise.
func Cancelled(ctx context.Context) job.Cancel {
	why := context.Cause(ctx)
	if errors.Is(why, context.DeadlineExceeded) {
		return job.Cancel{Code: 124, Why: why.Error()}
	}
	return job.Cancel{Code: 130, Why: why.Error()}
}

// Preempted returns the event that ends a job because its nodes will be gone after the time within.
// If loose is set, golaunch lets the scheduler end ranks that are not ready by then.
func Preempted(why string, within time.Duration, loose bool) job.Cancel {
	return job.Cancel{Code: codePreempted, Why: why, Ending: report.EndPreempted, Within: within, Loose: loose}
}

// codePreempted is the exit code of a process that a scheduler has ended (128 + SIGTERM).
const codePreempted = 143

// errEnding answers the callers of a coordinator that is ending. Its code is Unavailable, because a
// cluster's coordinator may come back.
var errEnding = status.Error(codes.Unavailable, "the coordinator is ending")

// endError returns the answer to a client once Run has ended. It says that the only job is over,
// that the coordinator may come back, or that the coordinator is in another process.
func (c *Coordinator) endError() error {
	switch {
	case c.onlyJob != nil && c.end.finished:
		return status.Error(codes.NotFound, "job "+c.onlyJob.Job.ID+" is over")
	case c.onlyJob == nil && c.cfg.Candidate != nil:
		return c.cfg.Candidate.election.Elsewhere()
	}
	return errEnding
}

// startSkew bounds the time between the first and the last of the nodes that were started together.
const startSkew = 10 * time.Second

// awaitGoodbyes waits until all agents have said goodbye to the finished job, including agents that
// are only just starting.
func (c *Coordinator) awaitGoodbyes() {
	c.log.Release(true) // functions that wait for the log run at once from now on
	late := time.NewTimer(time.Until(c.started.Add(startSkew)))
	defer late.Stop()
	expect := c.cfg.StartedTogether
	if c.tooFewNodes {
		expect = c.cfg.Nodes
	}
	c.receiveWhile(func() bool { return len(c.everJoined)+len(c.refused) < expect }, late.C)
	patience := min(c.cfg.Lease, 5*time.Second)
	if c.restored { // agents may not have found this coordinator yet
		patience = c.cfg.Lease
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	if !c.receiveWhile(func() bool { return len(c.members) > 0 }, limit.C) {
		names := slices.Sorted(maps.Keys(c.members))
		c.warn(fmt.Errorf("%d agents did not confirm that the job is over: %s", len(names),
			strings.Join(names[:min(len(names), 8)], ", ")))
	}
}

// receiveWhile handles messages for as long as waits returns true. It returns false if the limit
// ended the wait.
func (c *Coordinator) receiveWhile(waits func() bool, limit <-chan time.Time) bool {
	for waits() {
		select {
		case f := <-c.inbox:
			f()
		case <-c.heartbeats.wake:
			c.answerHeartbeats()
		case <-c.ready.wake:
			c.receive()
		case <-limit:
			return false
		}
	}
	return true
}

// resign leaves the job to another coordinator, and answers callers that this process is not the
// coordinator.
func (c *Coordinator) resign() {
	c.log.Release(false)
	c.unpublish()
}

// unpublish makes this process answer its callers that it is not the coordinator.
func (c *Coordinator) unpublish() {
	if c.cfg.Candidate != nil {
		c.cfg.Candidate.coordinator.CompareAndSwap(c, nil)
	}
}

// drainLimit bounds the wait for the log, and also the wait for providers, when a coordinator ends.
const drainLimit = 2 * time.Second

// drainLog waits until the log has stored all entries. It gives up after drainLimit, because a disk
// may hang.
func (c *Coordinator) drainLog() {
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for c.log.Flush(); c.log.Busy(); c.log.Flush() {
		select {
		case f := <-c.inbox:
			f()
		case <-limit.C:
			c.warn(errors.New("cannot write the end of the coordinator's log: the disk hangs"))
			return
		}
	}
}
