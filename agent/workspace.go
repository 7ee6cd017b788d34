package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/golaunch/golaunch/agent/internal/workspaces"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/workspace"
)

// newWorkspaces returns the store of this node's workspaces.
func (m *membership) newWorkspaces() *workspaces.Store {
	return workspaces.New(workspaces.Options{
		Cache: workspace.NewCache(m.Workspaces.Dir), Coordinator: m.session, Addr: m.session.Node.Addr,
		Server: m.Workspaces.Server, Client: m.Workspaces.Client, Warn: m.Warn,
	})
}

// openWorkspace begins to make the directory that the ranks run in, if the job has a workspace.
func (j *jobOnNode) openWorkspace(kept keptJob) {
	if j.err != nil || kept.Workspace.ID == "" {
		return
	}
	within, err := ports.Parse(j.work.Task.Ports)
	switch {
	case err != nil:
		j.err = err
	case j.node.Workspaces.Dir == "":
		j.err = errors.New("this node has no directory for workspaces")
	case !workspace.ValidID(kept.Workspace.ID) || kept.Workspace.Bytes <= 0 || kept.Workspace.Bytes > workspace.MaxArchive:
		j.err = fmt.Errorf("the job's workspace makes no sense: %.80q with %d bytes", kept.Workspace.ID, kept.Workspace.Bytes)
	default:
		former := workspaces.Former{Dir: kept.Directory, Lock: kept.lock}
		if k := j.node.starter.Keeper; k != nil {
			former.Keep = func(lock *os.File) {
				if err := k.Keep(j.id, lock); err != nil {
					j.node.Warn(fmt.Errorf("the workspace of job %s is lost if this agent is: %w", j.id, err))
				}
			}
		}
		j.workspace = j.node.workspaces.Open(j.id, kept.Workspace, j.rights(), within, former)
		j.work.Task.Dir = filepath.Join(j.workspace.Dir(), j.work.Task.Dir)
	}
}

// awaitWorkspace returns a function that waits for the workspace until the job is over. It returns
// nil if the job has no workspace.
func (j *jobOnNode) awaitWorkspace() func() {
	if j.workspace == nil {
		return nil
	}
	return func() {
		_ = j.workspace.Await(j.ending.ctx) // the attempt waits for the workspace too, and reports the error
	}
}

// arriveOnce waits for the workspace or for the end of the job, and then calls arrived.
func (j *jobOnNode) arriveOnce(arrived func()) error {
	defer arrived()
	return j.arrive(j.ending.ctx)
}

// slowWorkspace is the time between messages about a workspace that is still on its way.
const slowWorkspace = 10 * time.Second

// arrive waits for the workspace, if the job has one.
func (j *jobOnNode) arrive(ctx context.Context) error {
	if j.workspace == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, workspaceLimit, fmt.Errorf("the workspace has not come within %v", workspaceLimit))
	defer cancel()
	came := make(chan error, 1)
	go func() { came <- j.workspace.Await(ctx) }()
	slow := time.Tick(slowWorkspace)
	for {
		select {
		case err := <-came:
			return err
		case <-slow:
			j.node.Say(fmt.Sprintf("%s waits for the workspace of job %s: %s have come", j.node.session.Node.Name, j.id, j.workspace.Progress()))
		}
	}
}

// workspaceLimit bounds the wait for a workspace. The largest takes 14 minutes at 100 Mbit/s.
const workspaceLimit = 30 * time.Minute

func (j *jobOnNode) closeWorkspace() {
	if j.workspace == nil {
		return
	}
	if err := j.workspace.Close(); err != nil {
		j.node.Warn(fmt.Errorf("cannot remove the workspace of job %s: %w", j.id, err))
	}
}
