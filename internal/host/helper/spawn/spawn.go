// Package spawn starts this program again as one of golaunch's helper processes.
//
// It is not in package helper because a helper process initializes that package first: os/exec
// needs packages that come late in Go's order of initialization.
package spawn

import (
	"context"
	"os"
	"os/exec"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// Command returns a command that starts the helper of a name. Files become its descriptors from
// [helper.First] on. The helper's environment has none of golaunch's secrets.
func Command(ctx context.Context, name string, files ...*os.File) (*exec.Cmd, error) {
	proof, err := helper.File()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args[0], cmd.ExtraFiles, cmd.Env = name, append([]*os.File{proof}, files...), helper.Env()
	return cmd, nil
}
