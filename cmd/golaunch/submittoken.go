package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/internal/wire/mtls"
)

func newSubmitToken(s *streams) *cobra.Command {
	file := ""
	c := newVerb("submit-token", "print a token for those who may submit jobs, and be no node", takes(0, 0))
	c.Long = "It is made from the token of the cluster, which must be here. Where the ranks of jobs run as the user of their agent, whoever may\n" +
		"submit one can read that token too: a submit token guards against accidents there, and is no boundary."
	c.Flags().StringVar(&file, "token-file", "", tokenUsage)
	c.RunE = s.does(func(*cobra.Command, []string) (int, error) {
		token, err := mtls.FindClusterToken(file, os.Getenv("GOLAUNCH_TOKEN"))
		if err == nil {
			_, err = fmt.Fprintln(s.stdout, token.Submit().Text())
		}
		return 0, err
	})
	return c
}
