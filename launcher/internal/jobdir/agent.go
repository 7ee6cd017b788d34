package jobdir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Agent is the directory of an agent of a cluster, with the files of the jobs that it has had.
type Agent struct {
	// Base is this agent's alone until Close.
	Base string
	// Shared says that the files of a job belong to the user who submitted it.
	Shared bool

	owned io.Closer

	mu sync.Mutex
	// elsewhere are the directories of jobs that chose their own.
	elsewhere map[string]place
	// done counts the jobs that have ended.
	done int
}

// place is where the directory of a job is, and the rights to it.
type place struct {
	base   string
	access logs.Access
}

// maxNamesakes bounds the agents with one name on a machine that did not choose their directory.
const maxNamesakes = 100

// TakeAgent takes a directory below base. If another agent has it, a chosen one is an error, and so
// is one whose ranks this agent adopts; any other agent gets a directory of its own.
func TakeAgent(base, name string, chosen, shared bool) (*Agent, error) {
	a := &Agent{Shared: shared, elsewhere: map[string]place{}}
	run := logs.NewRun()
	for n := 1; ; n++ {
		a.Base = filepath.Join(base, name)
		if n > 1 {
			a.Base += "." + strconv.Itoa(n)
		}
		var err error
		a.owned, err = logs.TakeBase(a.Base, run)
		switch taken, ok := errors.AsType[*logs.TakenError](err); {
		case err == nil:
			return a, a.checkShared(base)
		case !ok:
			return nil, err
		case chosen || n == maxNamesakes:
			return nil, usage.Errorf("%w: give this agent another --name or --log-dir", taken)
		}
	}
}

func (a *Agent) checkShared(base string) error {
	if !a.Shared {
		return nil
	}
	if err := errors.Join(passable(base), passable(a.Base)); err != nil {
		return errors.Join(fmt.Errorf("%w; choose another directory for logs with --log-dir", err), a.Close())
	}
	return nil
}

// Close lets another agent have the directory.
func (a *Agent) Close() error { return a.owned.Close() }

// Open opens the directory of a job that runs with those rights, in the directory that the job
// chose, or in the agent's. The cluster names the run.
func (a *Agent) Open(job, chosen, cluster string, rights *safefile.Rights) (*logs.Dir, error) {
	if chosen == "" {
		return logs.Access{Job: rights}.OpenDir(a.Base, job)
	}
	access := logs.Access{Base: rights, Job: rights}
	dir, err := take(access, chosen, job, cluster, true)
	if err == nil {
		a.note(job, place{chosen, access}) // not before: the directory may have another job's output
	}
	return dir, err
}

func (a *Agent) note(job string, p place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.elsewhere) >= kept {
		clear(a.elsewhere)
	}
	a.elsewhere[job] = p
}

// pruneEvery is after how many jobs the agent removes old ones: a pass costs some system calls for
// each job that is kept.
const pruneEvery = 20

// Done notes that a job has ended, and removes old ones from time to time.
func (a *Agent) Done() error {
	a.mu.Lock()
	a.done++
	prune := a.done%pruneEvery == 0
	a.mu.Unlock()
	if !prune {
		return nil
	}
	return logs.Prune(a.Base, kept-pruneEvery)
}

// Past opens the directory of a job that has ended. The files in Base belong to the job's user.
func (a *Agent) Past(job string) (*logs.Dir, error) {
	a.mu.Lock()
	p, elsewhere := a.elsewhere[job]
	a.mu.Unlock()
	if !elsewhere {
		p.base = a.Base
	}
	if info, err := os.Lstat(filepath.Join(a.Base, job)); !elsewhere && a.Shared && err == nil {
		p.access.Job = safefile.Of(info)
	}
	return p.access.FindDir(p.base, job)
}
