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
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/clusterverbs"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/controller"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/manpages"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/memlimit"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/torchrun"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/watch"
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
	if name := filepath.Base(os.Args[0]); (name == torchrun.Name || name == torchrun.FTName) && !own {
		args = append([]string{name}, args...)
	}
	os.Exit(Main(&cli.Console{Stdout: os.Stdout, Stderr: os.Stderr}, args))
}

// keepDescriptors sets close-on-exec on every inherited descriptor except the standard streams: a
// rank must not hold a script's lock or pipe.
func keepDescriptors() {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc the descriptors are unknown
	}
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Main runs golaunch with the given arguments and returns its exit code.
func Main(s *cli.Console, args []string) int { return s.Execute(rootFor(s, args), args) }

// verbs lists golaunch's verbs in the order of the help.
var verbs = []struct {
	name string
	make func(*cli.Console) *cobra.Command
}{
	{"run", func(s *cli.Console) *cobra.Command { return newRun(s, "run") }},
	{"coordinator", newCoordinator},
	{"agent", newAgent},
	{"status", watch.NewStatus},
	{"top", watch.NewTop},
	{"dashboard", watch.NewDashboard},
	{"jobs", watch.NewJobs},
	{"cost", watch.NewCost},
	{"logs", watch.NewLogs},
	{"stacks", watch.NewStacks},
	{"report", watch.NewReport},
	{"metrics", watch.NewMetrics},
	{"explain", newExplain},
	{"swap", newSwap},
	{"stop", newStop},
	{"plan", newPlan},
	{"env", newEnv},
	{"doctor", newDoctor},
	{torchrun.Name, func(s *cli.Console) *cobra.Command { return torchrun.NewVerb(s, torchrun.Name, os.Args[0], launch) }},
	{torchrun.FTName, func(s *cli.Console) *cobra.Command { return torchrun.NewVerb(s, torchrun.FTName, os.Args[0], launch) }},
	{"submit-token", newSubmitToken},
	{"up", clusterverbs.NewUp},
	{"down", clusterverbs.NewDown},
	{"attach", clusterverbs.NewAttach},
	{"exec", clusterverbs.NewExec},
	{"install", newInstall},
	{"version", newVersion},
	{internalverbs.Node, newNode},
	{internalverbs.Fabric, newFabricRank},
	{internalverbs.Controller, newController},
	{internalverbs.Workspace, newWorkspace},
}

// rootFor returns golaunch with the verbs that args may name, and no others. To make all verbs and
// their flags would take as long as everything else for a small job's command line.
func rootFor(s *cli.Console, args []string) *cobra.Command {
	if len(args) == 0 {
		return newRoot(s)
	}
	for _, v := range verbs {
		if v.name != args[0] {
			continue
		}
		c := v.make(s)
		if v.name == "run" && !givesCommand(c.Flags(), args[1:]) { // the help may list all verbs
			return newRoot(s)
		}
		root := &cobra.Command{Use: "golaunch"}
		prepare(s, root)
		root.CompletionOptions.DisableDefaultCmd = true
		root.AddCommand(c)
		return root
	}
	if root := newRun(s, "golaunch"); givesCommand(root.Flags(), args) || len(args) == 1 && args[0] == "--version" {
		prepare(s, root)
		return root
	}
	return newRoot(s)
}

// givesCommand reports whether args are flags and a command after "--", rather than a verb or a
// call for help.
func givesCommand(f *pflag.FlagSet, args []string) bool {
	for i := 0; i < len(args)-1; i++ {
		if args[i] == "--" {
			return true
		}
		name, _, valued := strings.Cut(args[i], "=")
		var flag *pflag.Flag
		if long, ok := strings.CutPrefix(name, "--"); ok {
			flag = f.Lookup(long)
		} else if len(name) == 2 && name[0] == '-' {
			flag = f.ShorthandLookup(name[1:])
		}
		if flag == nil || strings.HasPrefix(flag.Name, "help") {
			return false
		}
		if !valued && flag.NoOptDefVal == "" {
			i++
		}
	}
	return false
}

// newRoot returns golaunch with all verbs. Without a verb it runs a job.
func newRoot(s *cli.Console) *cobra.Command {
	root := newRun(s, "golaunch")
	prepare(s, root)
	root.SetHelpCommand(cli.NewHelp(s))
	for _, v := range verbs {
		root.AddCommand(v.make(s))
	}
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

// prepare sets how a root command prints.
func prepare(s *cli.Console, root *cobra.Command) {
	cobra.EnableCommandSorting = false
	root.Long = cli.Intro
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { s.Show(cli.HelpOf(c)) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see %s --help", launcher.ErrUsage, cli.PlainError(err), c.CommandPath())
	})
}

// golaunch calls the following verbs itself, on other machines and as ranks.

func newNode(s *cli.Console) *cobra.Command {
	c := cli.NewVerb(internalverbs.Node, "be a node of a job that was started on another machine", cli.Args(0, 0))
	c.Hidden = true
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) { return internalverbs.ServeNode(), nil })
	return c
}

func newFabricRank(s *cli.Console) *cobra.Command {
	c := cli.NewVerb(internalverbs.Fabric+" OPTIONS", "be a rank of doctor --fabric", cli.Args(1, 1))
	c.Hidden = true
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return fabricRank(args[0]) })
	return c
}

func newController(s *cli.Console) *cobra.Command {
	c := cli.NewVerb(internalverbs.Controller, "serve the program at the other end of standard input, which runs groups of workers", cli.Args(0, 0))
	c.Hidden = true
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		return 0, controller.Serve(context.Background(), os.Stdin, s.Stdout, s.Stderr)
	})
	return c
}
