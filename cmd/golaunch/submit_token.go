package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

func newSubmitToken(s *cli.Console) *cobra.Command {
	file := ""
	c := cli.NewVerb("submit-token", "print a token that can submit jobs but not be a node", cli.Args(0, 0))
	c.Long = "golaunch makes it from the cluster's token, which must be on this machine. If ranks run as the user of their agent, anyone who can\n" +
		"submit a job can read the cluster's token too: there a submit token guards against accidents, and is no security boundary."
	c.Flags().StringVar(&file, "token-file", "", cli.TokenUsage)
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		token, err := mtls.FindClusterToken(file, os.Getenv("GOLAUNCH_TOKEN"))
		if err == nil {
			_, err = fmt.Fprintln(s.Stdout, token.Submit().Text())
		}
		return 0, err
	})
	return c
}
