package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// patienceToLook is how long a file system may be silent: where one comes back from a failover, that takes minutes.
	patienceToLook = 5 * time.Minute
	// sayItIsSlow is when it is said which one is.
	sayItIsSlow = 10 * time.Second
)

// look is a look at a job's command and where it is to run, which may be on a file system that does not answer. Only who waits for it can
// be stopped then.
type look struct {
	share *share
	// at is the path that is looked at.
	at atomic.Pointer[string]
	// exit is how a rank would end, once done is closed.
	exit report.Exit
	done chan struct{}
}

// look is the one that goes on, or a new one: where a file system is dead, no more than one of a job waits for it.
func (s *share) look() *look {
	if s.looked != nil {
		select {
		case <-s.looked.done:
		default:
			return s.looked
		}
	}
	l := &look{share: s, done: make(chan struct{})}
	s.looked = l
	c, check := s.sample(), s.agent.check
	if check == nil {
		check = proc.Check
	}
	c.Looking = func(path string) { l.at.Store(&path) }
	go func() {
		defer close(l.done)
		if err := check(c); err != nil {
			l.exit = err.Exit
		}
	}()
	return l
}

// wait returns how a rank would end; after ctx what it returns means nothing.
func (l *look) wait(ctx context.Context) report.Exit {
	slow, late := time.NewTimer(sayItIsSlow), time.NewTimer(patienceToLook)
	defer slow.Stop()
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return report.Exit{}
		case <-l.done:
			return l.exit
		case <-slow.C:
			l.share.agent.Warn(fmt.Errorf("job %s: %s has not answered for %v: is its file system there?", l.share.job, l.path(), sayItIsSlow))
		case <-late.C:
			return spawnExit(fmt.Errorf("start %q: %s has not answered for %v: is its file system there?", l.share.work.Task.Command[0], l.path(), patienceToLook))
		}
	}
}

func (l *look) path() string {
	if at := l.at.Load(); at != nil {
		return *at
	}
	return "what it looks at"
}
