package launcher

import (
	"errors"
	"path/filepath"

	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
)

// DefaultWorkspaceLimit bounds the files of a workspace, in bytes; it is Ray's limit.
const DefaultWorkspaceLimit = 512 << 20

func (j Job) checkWorkspace() error {
	switch {
	case j.Workspace == "":
	case j.Dir != "" && !filepath.IsLocal(j.Dir):
		return usage.Errorf("working directory %q: with a workspace, a directory in it", j.Dir)
	case j.WorkspaceLimit < 0 || j.WorkspaceLimit > workspace.MaxLimit:
		return usage.Errorf("workspace limit %d: at most %s", j.WorkspaceLimit, workspace.Size(workspace.MaxLimit))
	}
	return nil
}

// workspacesDir has the workspaces of this user's jobs without a cluster.
func workspacesDir() string { return filepath.Join(jobdir.Temp(), jobdir.Workspaces) }

// packed is a workspace, if the job has one.
type packed struct{ *workspace.Archive }

// pack packs the job's workspace.
func (j Job) pack() (packed, error) {
	if j.Workspace == "" {
		return packed{}, nil
	}
	if _, err := jobdir.Base(""); err != nil {
		return packed{}, err
	}
	a, err := workspace.NewCache(workspacesDir()).Pack(j.Workspace, j.WorkspaceLimit)
	if _, input := errors.AsType[*workspace.InputError](err); input {
		return packed{}, usage.Errorf("%v", err)
	}
	return packed{a}, err
}

func (l *localRun) pack() (err error) {
	l.archive, err = l.job.pack()
	return err
}

func (p packed) info() report.Workspace {
	if p.Archive == nil {
		return report.Workspace{}
	}
	return p.Workspace
}

func (p packed) close() {
	if p.Archive != nil {
		p.Close()
	}
}

// DescribeWorkspace says what the job's workspace would be if it were packed now; nil if the job has
// none.
func (j Job) DescribeWorkspace() (*report.Workspace, error) {
	j, err := j.complete()
	if err != nil || j.Workspace == "" {
		return nil, err
	}
	w, err := workspace.Describe(j.Workspace, j.WorkspaceLimit)
	if _, input := errors.AsType[*workspace.InputError](err); input {
		return nil, usage.Errorf("%v", err)
	}
	return &w, err
}
