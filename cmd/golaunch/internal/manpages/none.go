//go:build !man

package manpages

import (
	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
)

// Verbs returns nothing.
func Verbs(*cli.Console) []*cobra.Command { return nil }
