package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher"
)

// newWorkspace writes the archive of a directory, a tar file, to standard output.
func newWorkspace(s *cli.Console) *cobra.Command {
	c := cli.NewVerb(internalverbs.Workspace+" DIRECTORY", "pack a directory that travels", cli.Args(1, 1))
	c.Hidden = true
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) {
		_, err := workspace.Write(os.Stdout, args[0], launcher.DefaultWorkspaceLimit)
		return 0, err
	})
	return c
}
