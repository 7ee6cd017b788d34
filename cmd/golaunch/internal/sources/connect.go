// Package sources connects to the coordinators whose jobs are shown.
package sources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

// Target names the coordinators to ask.
type Target struct {
	// Coordinator and TokenFile are as in [launcher.Connect]. With a Job, only its coordinator is
	// asked.
	Coordinator, TokenFile, Job string
}

// errNothing is the error when there is nothing to show.
var errNothing = fmt.Errorf("no job of yours runs on this machine, and %w", launcher.ErrNoCoordinator)

// Connect connects to the coordinators of a target and returns them by address: the named
// coordinator, or else all coordinators that this user runs on this machine, for clusters and for
// single jobs.
func (w Target) Connect(ctx context.Context) (map[string]view.Source, error) {
	if w.Coordinator != "" || w.Job != "" {
		c, err := launcher.ConnectJob(ctx, w.Coordinator, w.TokenFile, w.Job)
		if err != nil {
			return nil, err
		}
		if c.Local() {
			return map[string]view.Source{localPrefix + w.Job: c}, nil
		}
		return map[string]view.Source{c.Target: c}, nil
	}
	all := map[string]view.Source{}
	c, err := launcher.Connect(ctx, "", w.TokenFile)
	switch {
	case err == nil:
		all[c.Target] = c
	case !errors.Is(err, launcher.ErrNoCoordinator):
		return nil, err
	}
	jobs, err := w.localJobs(ctx, func(string) bool { return false })
	if err != nil {
		return nil, errors.Join(err, Close(all))
	}
	if maps.Copy(all, jobs); len(all) == 0 {
		return nil, errNothing
	}
	return all, nil
}

// More connects to further jobs that have begun on this machine, for a [view.Model].
func (w Target) More(ctx context.Context, known func(at string) bool) map[string]view.Source {
	if w.Coordinator != "" || w.Job != "" {
		return nil
	}
	all, _ := w.localJobs(ctx, known) // after an error, the known jobs stay
	return all
}

// localJobs connects to the unknown jobs that have their own coordinator on this machine.
func (w Target) localJobs(ctx context.Context, known func(at string) bool) (map[string]view.Source, error) {
	jobs, err := launcher.LocalJobs(ctx)
	all := map[string]view.Source{}
	for _, id := range jobs {
		if known(localPrefix + id) {
			continue
		}
		c, connectErr := launcher.ConnectJob(ctx, "", w.TokenFile, id)
		switch {
		case connectErr != nil: // the job's coordinator may have ended
		case c.Local():
			all[localPrefix+id] = c
		default: // it has ended, and this is the cluster's coordinator
			err = errors.Join(err, c.Close())
		}
	}
	return all, err
}

// localPrefix begins the address of a job that has its own coordinator on this machine.
const localPrefix = "job "

// Ended reports whether the source at an address was a job of this machine, and the job's own
// coordinator has ended.
func Ended(ctx context.Context, at string) bool {
	job, local := strings.CutPrefix(at, localPrefix)
	jobs, err := launcher.LocalJobs(ctx)
	return local && err == nil && !slices.Contains(jobs, job)
}

// Close closes sources.
func Close(all map[string]view.Source) error {
	var errs []error
	for _, at := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, all[at].Close())
	}
	return errors.Join(errs...)
}
