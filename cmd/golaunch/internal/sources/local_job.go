package sources

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// LocalJob is a job of this machine that has its own coordinator. When the coordinator ends with
// the job, LocalJob answers with the last state, until a job of the same name begins.
type LocalJob struct {
	*launcher.Client
	ctx context.Context
	job string
	// lost is called when the coordinator has ended without a result.
	lost func()

	mu   sync.Mutex
	last report.Status
	// over is closed when the result is known, or can no longer become known. It is nil while no
	// goroutine waits for the result.
	over   chan struct{}
	result *report.Result
	ended  time.Time
	closed bool
}

// lastWords bounds the wait for the result of a job whose coordinator is gone.
const lastWords = 3 * time.Second

// Query asks the coordinator, or returns the last state. It does not wait for a coordinator whose
// job is known to be over.
func (l *LocalJob) Query(ctx context.Context, q report.Query) (report.Status, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	if over := l.waits(); over != nil {
		go func() {
			select {
			case <-over:
				if l.HasResult() {
					cancel()
				}
			case <-asking.Done():
			}
		}()
	} else if l.gone(ctx) {
		if past, ok := l.past(ctx); ok {
			return past, nil
		}
	}
	status, err := l.Client.Query(asking, q)
	if err == nil {
		l.note(status, !q.Brief)
		return status, nil
	}
	if l.HasResult() || l.gone(ctx) {
		if past, ok := l.past(ctx); ok {
			return past, nil
		}
		return status, fmt.Errorf("job %s is over: %w: %w", l.job, launcher.ErrNotThere, err)
	}
	return status, err
}

// waits returns the channel that is closed with the job's end; nil while no goroutine waits for it.
func (l *LocalJob) waits() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// HasResult reports whether the job's result is known.
func (l *LocalJob) HasResult() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result != nil
}

// gone reports whether no coordinator of the job runs on this machine.
func (l *LocalJob) gone(ctx context.Context) bool {
	jobs, err := launcher.LocalJobs(ctx)
	return err == nil && !slices.Contains(jobs, l.job)
}

// note keeps the coordinator's answer and starts to wait for the result.
func (l *LocalJob) note(s report.Status, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if whole {
		l.last = s
	}
	l.result, l.ended = nil, time.Time{}
	if l.over == nil {
		l.over = make(chan struct{})
		go l.wait(l.over)
	}
}

// wait waits for the job's result.
func (l *LocalJob) wait(over chan struct{}) {
	defer close(over)
	result, err := l.Wait(l.ctx, l.job)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = nil; err == nil {
		l.result = &result
	}
}

// since is when the job ended; zero while it runs.
func (l *LocalJob) since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// past returns the last state of a job that is over.
func (l *LocalJob) past(ctx context.Context) (report.Status, bool) {
	l.awaitResult(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.last.Jobs, func(j report.JobStatus) bool { return j.ID == l.job })
	if i < 0 || l.closed {
		return report.Status{}, false
	}
	if l.ended.IsZero() {
		if l.ended = time.Now(); l.result == nil {
			l.lost()
		}
	}
	j := l.last.Jobs[i]
	j.Phase, j.Finished, j.Result = "finished", cmp.Or(j.Finished, l.ended), cmp.Or(l.result, j.Result)
	if j.Waits = "its coordinator is gone; the terminal where the job was started shows how it ended"; j.Result != nil {
		j.Waits = j.Result.Reason
	}
	return report.Status{Jobs: []report.JobStatus{j}}, true
}

// Over reports whether the job has ended. It waits a limited time for the result.
func (l *LocalJob) Over(ctx context.Context) bool {
	l.awaitResult(ctx)
	return l.HasResult()
}

// awaitResult waits a limited time for the result, after the coordinator is gone.
func (l *LocalJob) awaitResult(ctx context.Context) {
	l.mu.Lock()
	over := l.over
	if !l.ended.IsZero() {
		over = nil
	}
	l.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(lastWords):
	case <-ctx.Done():
	}
}

// Logs returns the coordinator's logs. When the job is over, it does not report lost nodes.
func (l *LocalJob) Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error] {
	return func(yield func(report.LogChunk, error) bool) {
		for c, err := range l.Client.Logs(ctx, id, f) {
			if c.Missing != "" && id == l.job && l.Over(ctx) {
				continue
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Close closes the connection and forgets the last state.
func (l *LocalJob) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.Client.Close()
}
