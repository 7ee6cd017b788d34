// Package cli is the frame of golaunch's verbs: their console, flags, variables, help and errors.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/launcher"
)

// NewVerb returns a verb without flags.
func NewVerb(use, short string, args cobra.PositionalArgs) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true}
	c.Flags().SortFlags = false
	c.Flags().SetNormalizeFunc(NormalizeName)
	return c
}

// Run wraps the function of a verb. It first sets each flag that was not given from the flag's
// variable. The verb returns its exit code, or an error that Execute prints.
func (s *Console) Run(run func(c *cobra.Command, args []string) (int, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) (err error) {
		if err = SetFromEnv(c.Flags()); err == nil {
			s.began = true
			s.JSON, _ = c.Flags().GetBool("json") // false if the verb has no such flag
			s.code, err = run(c, args)
		}
		return err
	}
}

// arguments returns a number of arguments as text.
func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// Args bounds the number of arguments of a verb.
func Args(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("%w: want golaunch %s, got %s", launcher.ErrUsage, c.Use, arguments(n))
		}
		return nil
	}
}
