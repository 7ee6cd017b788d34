// Golaunch starts, watches and restarts distributed training jobs.
//
//	golaunch --nodes 2 --gpus-per-node 8 -- python main.py
//
// See README.md for its verbs, flags and exit codes.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/controller"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/manpages"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/memlimit"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/torchrun"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/launcher"
)

func main() {
	if why := memlimit.Check(); why != "" {
		fmt.Fprintln(os.Stderr, "golaunch:", why)
		os.Exit(cli.ExitFailure)
	}
	keepDescriptors()
	args := os.Args[1:]
	own := len(args) > 0 && slices.Contains(internalverbs.Verbs, args[0])
	if filepath.Base(os.Args[0]) == "torchrun" && !own {
		args = append([]string{"torchrun"}, args...)
	}
	os.Exit(Main(&cli.Console{Stdout: os.Stdout, Stderr: os.Stderr}, args))
}

// keepDescriptors keeps the descriptors that this process inherited, apart from the standard
// streams, from every process that it starts: a rank must not hold a script's lock or pipe.
func keepDescriptors() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc nobody knows
	}
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Main runs golaunch with the given arguments and returns its exit code.
func Main(s *cli.Console, args []string) int { return s.Execute(newRoot(s), args) }

// newRoot returns golaunch's verbs. Without one it runs a job.
func newRoot(s *cli.Console) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := newRun(s, "golaunch")
	root.Long = cli.Intro
	root.Version = readBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(s.Stdout, cli.HelpOf(c)) })
	root.SetHelpCommand(cli.NewHelp(s))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see %s --help", launcher.ErrUsage, cli.PlainError(err), c.CommandPath())
	})
	root.AddCommand(newRun(s, "run"), newCoordinator(s), newAgent(s), newStatus(s), newTop(s), newDashboard(s), newJobs(s), newLogs(s), newStacks(s),
		newReport(s), newMetrics(s), newExplain(s), newSwap(s), newStop(s), newPlan(s), newEnv(s), newDoctor(s), torchrun.NewVerb(s, os.Args[0], launch), newSubmitToken(s), newInstall(s),
		newVersion(s))
	root.AddCommand(newHidden(s)...)
	root.AddCommand(manpages.Verbs(s)...)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Use, c.Short = "completion bash|zsh|fish|powershell", "print a shell's completion script"
			c.RunE = func(*cobra.Command, []string) error {
				return fmt.Errorf("%w: for which shell? bash, zsh, fish or powershell", launcher.ErrUsage)
			}
		}
	}
	return root
}

// newHidden returns the verbs that golaunch itself calls, on other machines and as ranks.
func newHidden(s *cli.Console) []*cobra.Command {
	node := cli.NewVerb(internalverbs.Node, "be a node of a job that was started on another machine", cli.Args(0, 0))
	node.RunE = s.Run(func(*cobra.Command, []string) (int, error) { return internalverbs.ServeNode(), nil })
	rank := cli.NewVerb(internalverbs.Fabric+" OPTIONS", "be a rank of doctor --fabric", cli.Args(1, 1))
	rank.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return fabricRank(args[0]) })
	program := cli.NewVerb(internalverbs.Controller, "be the helper of a program that runs groups of workers, which is at the other end of standard input", cli.Args(0, 0))
	program.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		return 0, controller.Serve(context.Background(), os.Stdin, s.Stdout, s.Stderr)
	})
	node.Hidden, rank.Hidden, program.Hidden = true, true, true
	return []*cobra.Command{node, rank, program}
}
