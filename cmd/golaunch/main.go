// Golaunch starts, watches and restarts distributed training jobs.
//
//	golaunch --nodes 2 --gpus-per-node 8 -- python main.py
//
// See README.md for its verbs, flags and exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/controller"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// Exit codes of golaunch's own, beside the root cause's: those of timeout(1) and docker-run(1).
const (
	exitUsage   = 2
	exitFailure = 125
)

// streams are the process's own, so that a verb can be run in a test, and the exit code of the verb that has run.
type streams struct {
	stdout, stderr io.Writer
	code           int
	// began says that a verb has run: what failed before is how it was called.
	began bool
	// json says that the verb was called with --json.
	json bool
	// words are for stderr.
	begun sync.Once
	words *asyncwriter.Speaker
}

// say prints what a person may want to know.
func (s *streams) say(text string) { s.tell("golaunch: "+text, jsonout.Words{Reason: text}) }

// warn prints what went wrong without ending the verb.
func (s *streams) warn(err error) {
	s.tell("golaunch: warning: "+err.Error(), jsonout.Words{Warning: err.Error()})
}

// tell prints words as they were asked for.
func (s *streams) tell(text string, words jsonout.Words) {
	text += "\n"
	if s.json {
		text = string(words.Bytes())
	}
	s.print(text)
}

// print prints on stderr, and waits for who reads that for a limited time: no verb goes on, or
// ends, only when somebody reads.
func (s *streams) print(text string) {
	s.begun.Do(func() {
		s.words = asyncwriter.New(func(missed int) {
			fmt.Fprintf(s.stderr, "golaunch: warning: %d messages are not shown: nobody has read those before\n", missed)
		})
	})
	printed := make(chan struct{})
	s.words.Say(func() {
		fmt.Fprint(s.stderr, text)
		close(printed)
	})
	late := time.NewTimer(asyncwriter.Patience)
	defer late.Stop()
	select {
	case <-printed:
	case <-late.C:
	}
}

func main() {
	if why := cramped(); why != "" {
		fmt.Fprintln(os.Stderr, "golaunch:", why)
		os.Exit(exitFailure)
	}
	keepDescriptors()
	args := os.Args[1:]
	own := len(args) > 0 && slices.Contains(internalverbs.Verbs, args[0])
	if filepath.Base(os.Args[0]) == "torchrun" && !own {
		args = append([]string{"torchrun"}, args...)
	}
	os.Exit(Main(&streams{stdout: os.Stdout, stderr: os.Stderr}, args))
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
func Main(s *streams, args []string) int {
	root := newRoot(s)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquote(root)
	}
	c, err := root.ExecuteC()
	if err == nil {
		return s.code
	}
	who, text, code := "golaunch", err.Error(), exitFailure
	if errors.Is(err, launcher.ErrUsage) || !s.began {
		who, text, code = c.CommandPath(), strings.TrimPrefix(text, launcher.ErrUsage.Error()+": "), exitUsage
	}
	if s.code != 0 {
		code = s.code
	}
	s.json = s.json || !s.began && wantsJSON(c, args)
	s.tell(who+": "+text, jsonout.Words{Error: errorShown(c, err, text, code)})
	return code
}

// newRoot returns golaunch's verbs. Without one it runs a job.
func newRoot(s *streams) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := newRun(s, "golaunch")
	root.Long = intro
	root.Version = readBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(s.stdout, helpOf(c)) })
	root.SetHelpCommand(newHelp(s))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see %s --help", launcher.ErrUsage, plainly(err), c.CommandPath())
	})
	root.AddCommand(newRun(s, "run"), newCoordinator(s), newAgent(s), newStatus(s), newTop(s), newDashboard(s), newJobs(s), newLogs(s), newStacks(s),
		newReport(s), newMetrics(s), newExplain(s), newSwap(s), newStop(s), newPlan(s), newEnv(s), newDoctor(s), newTorchrun(s), newSubmitToken(s), newInstall(s),
		newVersion(s))
	root.AddCommand(newHidden(s)...)
	if extra != nil {
		root.AddCommand(extra(s))
	}
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

// extra is a verb of a build for developers.
var extra func(*streams) *cobra.Command

// newVerb returns one of golaunch's verbs, without its flags.
func newVerb(use, short string, args cobra.PositionalArgs) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true}
	c.Flags().SortFlags = false
	c.Flags().SetNormalizeFunc(normalize)
	return c
}

// does is what a verb does when its flags were read, and have been taken from their variables where they were not given. What it returns is
// the exit code, or an error that Main prints.
func (s *streams) does(run func(c *cobra.Command, args []string) (int, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) (err error) {
		if err = fromEnv(c.Flags()); err == nil {
			s.began, s.json = true, givenJSON(c.Flags())
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
func takes(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("%w: it is used as golaunch %s; this has %s", launcher.ErrUsage, c.Use, arguments(n))
		}
		return nil
	}
}

// newHidden returns the verbs that golaunch itself calls, on other machines and as ranks.
func newHidden(s *streams) []*cobra.Command {
	node := newVerb(internalverbs.Node, "be a node of a job that was started on another machine", takes(0, 0))
	node.RunE = s.does(func(*cobra.Command, []string) (int, error) { return internalverbs.ServeNode(), nil })
	rank := newVerb(internalverbs.Fabric+" OPTIONS", "be a rank of doctor --fabric", takes(1, 1))
	rank.RunE = s.does(func(_ *cobra.Command, args []string) (int, error) { return fabricRank(args[0]) })
	program := newVerb(internalverbs.Controller, "be the helper of a program that runs groups of workers, which is at the other end of standard input", takes(0, 0))
	program.RunE = s.does(func(*cobra.Command, []string) (int, error) {
		return 0, controller.Serve(context.Background(), os.Stdin, s.stdout, s.stderr)
	})
	node.Hidden, rank.Hidden, program.Hidden = true, true, true
	return []*cobra.Command{node, rank, program}
}
