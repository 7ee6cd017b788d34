package launcher

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/golaunch/golaunch/launcher/internal/up"
)

// ClusterFile is a cluster that is started from a file (docs/up.md), or one of Ray's cluster launcher.
type ClusterFile struct {
	Path string
	// Say gets what happens, and Warn what is wrong but ends nothing.
	Say  func(string)
	Warn func(error)
	// Confirm asks a person before something changes or ends.
	Confirm func(question string) (bool, error)
}

func (c ClusterFile) load() (*up.Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the program that the head runs: %w", err)
	}
	u := &up.Cluster{Path: c.Path, Golaunch: self, Say: c.Say, Warn: c.Warn, Confirm: c.Confirm}
	return u, u.Load()
}

// Up starts the cluster, or changes it to what the file says.
func (c ClusterFile) Up(ctx context.Context) error {
	u, err := c.load()
	if err != nil {
		return err
	}
	return u.Up(ctx)
}

// DryRun writes the calls by which Up would make the head and a node of each kind.
func (c ClusterFile) DryRun(ctx context.Context, w io.Writer) error {
	u, err := c.load()
	if err != nil {
		return err
	}
	return u.DryRun(ctx, w)
}

// Down ends the cluster, and returns once its providers have none of its nodes.
func (c ClusterFile) Down(ctx context.Context) error {
	u, err := c.load()
	if err != nil {
		return err
	}
	return u.Down(ctx)
}

// Exec runs a command line on the head, or a shell if it is empty, and returns its exit code.
func (c ClusterFile) Exec(ctx context.Context, line string, stdin *os.File, stdout, stderr io.Writer, terminal bool) (int, error) {
	u, err := c.load()
	if err != nil {
		return 0, err
	}
	return u.Exec(ctx, line, stdin, stdout, stderr, terminal)
}
