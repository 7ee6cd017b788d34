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

// localJob is a job of this machine with a coordinator of its own, which ends with it: what was known of it then is what there is to say
// afterwards, until one of its name begins.
type LocalJob struct {
	*launcher.Client
	ctx context.Context
	job string
	// lost is called when the coordinator is gone and has not told how the job ended.
	lost func()

	mu   sync.Mutex
	last launcher.Status
	// over is closed when it is told how the job ends, or that nobody tells; nil when nobody waits for that.
	over   chan struct{}
	result *report.Result
	ended  time.Time
	closed bool
}

// lastWords bounds the wait for how a job ended whose coordinator is gone.
const lastWords = 3 * time.Second

// Query is as the coordinator says, or as it was. It does not wait for a coordinator whose job is known to be over.
func (l *LocalJob) Query(ctx context.Context, q launcher.Query) (launcher.Status, error) {
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

// waits is the channel that tells of the job's end, nil when nobody waits for that.
func (l *LocalJob) waits() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// told says that it is known how the job ended.
func (l *LocalJob) HasResult() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result != nil
}

// gone says that nobody tells anything of the job on this machine.
func (l *LocalJob) gone(ctx context.Context) bool {
	jobs, err := launcher.LocalJobs(ctx)
	return err == nil && !slices.Contains(jobs, l.job)
}

// note takes what the coordinator says, and has it tell how the job ends.
func (l *LocalJob) note(s launcher.Status, whole bool) {
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

// wait waits for the job's end.
func (l *LocalJob) wait(over chan struct{}) {
	defer close(over)
	result, err := l.Wait(l.ctx, l.job)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = nil; err == nil {
		l.result = &result
	}
}

// since is when the job ended, zero if it has not.
func (l *LocalJob) since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// past is what is known of a job that is over.
func (l *LocalJob) past(ctx context.Context) (launcher.Status, bool) {
	l.AwaitResult(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.last.Jobs, func(j launcher.JobStatus) bool { return j.ID == l.job })
	if i < 0 || l.closed {
		return launcher.Status{}, false
	}
	if l.ended.IsZero() {
		if l.ended = time.Now(); l.result == nil {
			l.lost()
		}
	}
	j := l.last.Jobs[i]
	j.Phase, j.Finished, j.Result = "finished", cmp.Or(j.Finished, l.ended), cmp.Or(l.result, j.Result)
	if j.Waits = "its coordinator is gone; where it was started is told how it ended"; j.Result != nil {
		j.Waits = j.Result.Reason
	}
	return launcher.Status{Jobs: []launcher.JobStatus{j}}, true
}

// hear waits, when the coordinator is just gone, for how the job ended.
func (l *LocalJob) AwaitResult(ctx context.Context) {
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

// Logs are as the coordinator has them. That its node is lost when the job is over is no news.
func (l *LocalJob) Logs(ctx context.Context, id string, f launcher.LogFilter) iter.Seq2[launcher.LogChunk, error] {
	return func(yield func(launcher.LogChunk, error) bool) {
		for c, err := range l.Client.Logs(ctx, id, f) {
			if c.Missing != "" && id == l.job && l.ends(ctx) {
				continue
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// ends says that the job is over, or, with a moment's patience, is about to be.
func (l *LocalJob) ends(ctx context.Context) bool {
	if over := l.waits(); over != nil {
		select {
		case <-over:
		case <-time.After(lastWords):
		case <-ctx.Done():
		}
	}
	return l.HasResult()
}

// Close ends what is known of it.
func (l *LocalJob) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.Client.Close()
}
