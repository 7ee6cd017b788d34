package jobdir

import (
	"errors"
	"path/filepath"

	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// WorkspacesDir returns the directory with the workspaces of this user's jobs that run without a
// cluster.
func WorkspacesDir() string { return filepath.Join(Temp(), Workspaces) }

// Pack packs the workspace of a job. If dir is empty, the job has no workspace, and the archive has
// no ID.
func Pack(dir string, limit int64) (*workspace.Archive, error) {
	if dir == "" {
		return new(workspace.Archive), nil
	}
	if _, err := Base(""); err != nil {
		return nil, err
	}
	a, err := workspace.NewCache(WorkspacesDir()).Pack(dir, limit)
	if _, input := errors.AsType[*workspace.InputError](err); input {
		return nil, usage.Errorf("%v", err)
	}
	return a, err
}
