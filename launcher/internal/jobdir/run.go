package jobdir

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/golaunch/golaunch/internal/process/logs"
)

// Run is the directory of the job that this process runs. Its agent and its coordinator both open
// it.
type Run struct {
	// Chosen is the user's directory for logs; empty for the temporary directory.
	Chosen string
	// Subdir is this node's part of the temporary directory, since several nodes may share a
	// machine.
	Subdir string
	// ID is the same for all processes of this run, and differs from other runs of a job with the
	// same job ID.
	ID string
	// Name returns the name of a job's directory for the job's ID.
	Name func(job string) string
	// Warn gets the reason why the job runs without files. It is nil on a node where the
	// coordinator's process warns instead.
	Warn func(error)

	mu  sync.Mutex
	dir *logs.Dir
	job string
}

// Open makes the directory of the job's files. If no directory can be made, a job without a chosen
// directory runs without files. Open needs the final ID of the job, which only the coordinator
// knows.
func (r *Run) Open(job string) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != nil {
		return nil
	}
	base, err := Base(r.Chosen)
	if err == nil {
		if r.Chosen == "" {
			base = filepath.Join(base, r.Subdir)
		}
		r.dir, err = take(logs.Access{}, base, r.Name(job), r.ID, r.Chosen != "")
	}
	if r.Chosen == "" && (errors.Is(err, errCannotMake) || logs.Full(err)) {
		if r.Warn != nil {
			r.Warn(fmt.Errorf("%w; this job goes on without files: no logs, no error files, no evidence", err))
		}
		r.dir, err = logs.NoDir(job), nil
	}
	r.job = job
	return err
}

// GiveUp removes the directory that this node opened for another job, which it gave up before that
// job began. The node now runs the given job.
func (r *Run) GiveUp(job string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == nil || r.job == job {
		return nil
	}
	dir := r.dir
	r.dir = nil
	if !dir.Made() {
		return dir.Close()
	}
	return dir.Remove()
}

// Dir returns the job's directory; nil before Open.
func (r *Run) Dir() *logs.Dir { return r.dir }

// Path returns the path of the job's directory; empty if the job runs without files.
func (r *Run) Path() string {
	if r.dir == nil {
		return ""
	}
	return r.dir.Path()
}

// Close ends the run. If needless is true, it removes the job's directory, unless the directory
// existed before the run. Of the directories in the temporary directory, it keeps only those of the
// last jobs.
func (r *Run) Close(needless bool) error {
	switch {
	case r.Path() == "":
		return nil
	case needless && r.dir.Made():
		return r.dir.Remove()
	}
	err := r.dir.Close()
	if r.Chosen != "" {
		return err
	}
	return errors.Join(err, logs.Prune(filepath.Dir(r.dir.Path()), kept))
}
