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
	c.Long = "It is made from the token of the cluster, which must be here. Where the ranks of jobs run as the user of their agent, whoever may\n" +
		"submit one can read that token too: a submit token guards against accidents there, and is no boundary."
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
