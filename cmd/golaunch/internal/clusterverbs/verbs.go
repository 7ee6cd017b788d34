// Package clusterverbs has the verbs for a cluster that a file describes: up, down, attach and
// exec.
package clusterverbs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/up"
)

// NewUp returns the verb that starts a cluster.
func NewUp(s *cli.Console) *cobra.Command {
	var yes, dry bool
	c := cli.NewVerb("up FILE", "start the cluster of a file, or change it to what the file says", cli.Args(1, 1))
	c.Long = "The file is that of coordinator --capacity, with the head of the cluster, or one of Ray's cluster launcher."
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before something changes")
	c.Flags().BoolVar(&dry, "dry-run", false, "print the calls that would make the head and the nodes, and make none")
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) {
		cluster, err := open(s, args[0], yes)
		switch {
		case err != nil:
			return 0, err
		case dry:
			return 0, cluster.DryRun(c.Context(), s.Stdout)
		}
		return 0, cluster.Up(c.Context())
	})
	return c
}

// NewDown returns the verb that ends a cluster.
func NewDown(s *cli.Console) *cobra.Command {
	var yes bool
	c := cli.NewVerb("down FILE", "end the cluster of a file with its jobs, and delete all its nodes", cli.Args(1, 1))
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) {
		cluster, err := open(s, args[0], yes)
		if err != nil {
			return 0, err
		}
		return 0, cluster.Down(c.Context())
	})
	return c
}

// NewAttach returns the verb that opens a shell on the head.
func NewAttach(s *cli.Console) *cobra.Command {
	c := cli.NewVerb("attach FILE", "open a shell on the head of a file's cluster", cli.Args(1, 1))
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) { return execute(c.Context(), s, args[0], "") })
	return c
}

// NewExec returns the verb that runs a command on the head.
func NewExec(s *cli.Console) *cobra.Command {
	c := cli.NewVerb("exec FILE COMMAND", "run a command line on the head of a file's cluster", func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return fmt.Errorf("%w: want golaunch exec FILE COMMAND", launcher.ErrUsage)
		}
		return nil
	})
	c.Flags().SetInterspersed(false) // flags after FILE belong to the command
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) {
		return execute(c.Context(), s, args[0], strings.Join(args[1:], " "))
	})
	return c
}

func execute(ctx context.Context, s *cli.Console, path, line string) (int, error) {
	cluster, err := open(s, path, false)
	if err != nil {
		return 0, err
	}
	return cluster.Exec(ctx, line, os.Stdin, s.Stdout, s.Stderr, terminal())
}

// terminal reports whether golaunch may ask a person.
func terminal() bool {
	_, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	return err == nil
}

// open reads the file that describes a cluster. If yes is false, the cluster's questions are asked
// at the terminal.
func open(s *cli.Console, path string, yes bool) (*up.Cluster, error) {
	c, err := up.Open(path)
	if err != nil {
		return nil, err
	}
	c.Say, c.Warn = s.Say, s.Warn
	c.Confirm = func(question string) (bool, error) {
		if yes {
			return true, nil
		}
		if !terminal() {
			return false, fmt.Errorf("%w: %s\nThere is no terminal to ask at: give --yes", launcher.ErrUsage, question)
		}
		fmt.Fprint(s.Stderr, question, " [y/N] ")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		answer := strings.ToLower(strings.TrimSpace(line))
		return answer == "y" || answer == "yes", nil
	}
	return c, nil
}
