//go:build man

package manpages

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
)

// Verbs returns the hidden verb that writes the manual pages into a directory.
func Verbs(s *cli.Console) []*cobra.Command {
	c := cli.NewVerb("_man DIR", "write the manual pages", cli.Args(1, 1))
	c.Hidden = true
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) {
		c.Root().DisableAutoGenTag = true
		header := &doc.GenManHeader{Title: "GOLAUNCH", Section: "1", Source: "golaunch", Manual: "golaunch"}
		return 0, doc.GenManTree(c.Root(), header, args[0])
	})
	return []*cobra.Command{c}
}
