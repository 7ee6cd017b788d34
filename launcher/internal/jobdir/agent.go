package jobdir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// Agent is the directory of an agent of a cluster, with the files of the agent's jobs.
type Agent struct {
	// Base is a directory that no other agent uses until Close.
	Base string
	// Shared says that the files of a job belong to the user who submitted it.
	Shared bool

	owned io.Closer

	mu sync.Mutex
	// elsewhere has the places of jobs that chose a directory outside of Base.
	elsewhere map[string]place
	// done counts the jobs that have ended.
	done int
}

// place is the directory below which a job's directory is, and the rights with which to use it.
type place struct {
	base   string
	access logs.Access
}

// maxNamesakes bounds the agents on a machine that have the same name and chose no directory.
const maxNamesakes = 100

// TakeAgent takes the directory base/name for this agent. If another agent uses that directory,
// TakeAgent fails if chosen is true. Otherwise it takes a directory with a number after the name.
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
		return errors.Join(unusable(err), a.Close())
	}
	return nil
}

// Close lets another agent have the directory.
func (a *Agent) Close() error { return a.owned.Close() }

// Open opens the directory of a job, below the directory that the job chose, or else below Base.
// The files get the given rights. cluster is the ID of the run.
func (a *Agent) Open(job, chosen, cluster string, rights *safefile.Rights) (*logs.Dir, error) {
	if chosen == "" {
		return logs.Access{Job: rights}.OpenDir(a.Base, job)
	}
	access := logs.Access{Base: rights, Job: rights}
	dir, err := take(access, chosen, job, cluster, true)
	if err == nil {
		a.note(job, place{chosen, access}) // only after take: until then the directory may have another job's output
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

// pruneEvery is the number of ended jobs after which the agent removes the files of old jobs. It
// does not do so after each job, because that costs some system calls for each job that is kept.
const pruneEvery = 20

// Done notes that a job has ended, and from time to time removes the files of old jobs.
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
