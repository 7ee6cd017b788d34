//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// A golaunch that is built with the tag man writes its manual pages into a directory; the others do not carry what that takes.
func init() {
	extra = func(s *streams) *cobra.Command {
		c := newVerb("_man DIR", "write the manual pages", takes(1, 1))
		c.Hidden = true
		c.RunE = s.does(func(c *cobra.Command, args []string) (int, error) {
			c.Root().DisableAutoGenTag = true
			return 0, doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "GOLAUNCH", Section: "1", Source: "golaunch", Manual: "golaunch"}, args[0])
		})
		return c
	}
}
