// Package cli is the frame of golaunch's verbs: their console, flags, variables, help and errors.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/launcher"
)

// newVerb returns one of golaunch's verbs, without its flags.
func NewVerb(use, short string, args cobra.PositionalArgs) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true}
	c.Flags().SortFlags = false
	c.Flags().SetNormalizeFunc(NormalizeName)
	return c
}

// does is what a verb does when its flags were read, and have been taken from their variables where they were not given. What it returns is
// the exit code, or an error that Main prints.
func (s *Console) Run(run func(c *cobra.Command, args []string) (int, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) (err error) {
		if err = SetFromEnv(c.Flags()); err == nil {
			s.began, s.JSON = true, givenJSON(c.Flags())
			s.code, err = run(c, args)
		}
		return err
	}
}

// arguments is a number of them in words.
func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// takes bounds how many arguments a verb has.
func Args(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("%w: it is used as golaunch %s; this has %s", launcher.ErrUsage, c.Use, arguments(n))
		}
		return nil
	}
}
