// Package torchrun runs jobs from torchrun's command line.
package torchrun

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// Name is the program's name, which begins its messages as with argparse.
const Name = "torchrun"

// launchFunc runs a job to its end. The job also stops on the signals in stops.
type launchFunc func(io *cli.Console, j launcher.Job, stops ...os.Signal) (int, error)

// NewVerb returns torchrun's verb, which parses its command line by torchrun's rules. The program
// was called as self.
func NewVerb(s *cli.Console, self string, launch launchFunc) *cobra.Command {
	c := cli.NewVerb("torchrun [FLAGS] SCRIPT [ARG...]", "run a job from torchrun's command line, as a link named torchrun does", nil)
	c.DisableFlagParsing = true
	c.Long = fmt.Sprintf("Its flags are torchrun's:\n\n%s", newTorchFlags(new(torchFlags)).FlagUsagesWrapped(110))
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return torchWords(newTorchFlags(new(torchFlags))), cobra.ShellCompDirectiveDefault
	}
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return torchrun(s, args, self, launch) })
	return c
}

// torchrun runs the job that torchrun's command line describes (torch 2.15,
// torch/distributed/run.py). docs/torchrun.md says what each flag means here.
func torchrun(io *cli.Console, args []string, self string, launch launchFunc) (int, error) {
	var t torchFlags
	f := newTorchFlags(&t)
	err := parseTorch(f, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(io.Stdout, torchIntro, f.FlagUsagesWrapped(110))
		return 0, nil
	case err == nil && t.shell != "":
		return torchCompletion(io, f, t.shell)
	case err != nil:
		return refuse(io, err)
	}
	j, warnings, err := t.job(f, self)
	if err != nil {
		return refuse(io, err)
	}
	io.JSON = j.Output.JSON
	if !j.Output.Quiet {
		for _, w := range warnings {
			io.Message(Name+": warning: "+w, jsonout.Words{Warning: w})
		}
	}
	return launch(io, j, t.stops()...)
}

// refuse prints the error of a bad command line, as argparse does.
func refuse(io *cli.Console, err error) (int, error) {
	io.Print(Name + ": " + strings.TrimPrefix(err.Error(), launcher.ErrUsage.Error()+": ") + "\n")
	return cli.ExitUsage, nil
}

const torchIntro = `usage: torchrun [FLAGS] SCRIPT [ARG...]

golaunch, with torchrun's command line. Each flag may be written with _ for - and shortened while no other begins alike; PET_ and
its name in capitals is its variable. The exit code is that of the rank that failed first, where torchrun's is always 1; restarts
are counted over all nodes, and rank 0 alone has the standard input. Flags that torchrun does not have are given by their
variables, such as GOLAUNCH_LEASE; see golaunch --help-all.

%s`

// torchCompletion prints a script that completes torchrun's flags.
func torchCompletion(io *cli.Console, f *pflag.FlagSet, shell string) (int, error) {
	script := map[string]string{
		"bash": "complete -o default -W %q torchrun\n",
		"zsh":  "#compdef torchrun\n_arguments '*: :(%s)'\n",
		"tcsh": "complete torchrun 'p/*/(%s)/'\n",
	}[shell]
	if script == "" {
		return refuse(io, fmt.Errorf("--print-completion %s: bash, zsh or tcsh", shell))
	}
	fmt.Fprintf(io.Stdout, script, strings.Join(torchWords(f), " "))
	return 0, nil
}
