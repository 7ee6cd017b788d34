// Package torchrun runs jobs from the command line of torchrun, or of ft_launcher, which has more
// flags.
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

// Name is the program's name, with which its messages begin, as with argparse.
const Name = "torchrun"

// launchFunc runs a job to its end. The job also stops on the signals in stops.
type launchFunc func(io *cli.Console, j launcher.Job, stops ...os.Signal) (int, error)

// NewVerb returns the verb of torchrun or ft_launcher, which parses its command line by the rules of
// that program. The program was called as self.
func NewVerb(s *cli.Console, name, self string, launch launchFunc) *cobra.Command {
	c := cli.NewVerb(name+" [FLAGS] SCRIPT [ARG...]", "run a job from "+name+"'s command line, as a link named "+name+" does", nil)
	c.DisableFlagParsing = true
	c.Long = fmt.Sprintf("Its flags are %s's:\n\n%s", name, newTorchFlags(flagsOf(name)).FlagUsagesWrapped(110))
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return torchWords(newTorchFlags(flagsOf(name))), cobra.ShellCompDirectiveDefault
	}
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) {
		return torchrun(s, flagsOf(name), args, self, launch)
	})
	return c
}

// flagsOf are the flags of torchrun or ft_launcher.
func flagsOf(name string) *torchFlags {
	if name == FTName {
		return &torchFlags{ft: &ftFlags{}}
	}
	return &torchFlags{}
}

// torchrun runs the job that torchrun's command line describes (torch 2.15,
// torch/distributed/run.py). docs/torchrun.md gives the meaning of each flag in golaunch, and
// docs/ft-launcher.md the meaning of the flags of ft_launcher.
func torchrun(io *cli.Console, t *torchFlags, args []string, self string, launch launchFunc) (int, error) {
	f := newTorchFlags(t)
	err := parseTorch(f, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		io.Show(fmt.Sprintf(torchIntro, t.program(), f.FlagUsagesWrapped(110)))
		return 0, nil
	case err == nil && t.shell != "":
		return torchCompletion(io, t.program(), f, t.shell)
	case err != nil:
		return refuse(io, t.program(), err)
	}
	j, warnings, err := t.job(f, self)
	if err != nil {
		return refuse(io, t.program(), err)
	}
	io.JSON = j.Output.JSON
	if !j.Output.Quiet {
		for _, w := range warnings {
			io.Message(t.program()+": warning: "+w, jsonout.Words{Warning: w})
		}
	}
	return launch(io, j, t.stops()...)
}

// refuse prints the error of a bad command line, as argparse does.
func refuse(io *cli.Console, name string, err error) (int, error) {
	io.Print(name + ": " + strings.TrimPrefix(err.Error(), launcher.ErrUsage.Error()+": ") + "\n")
	return cli.ExitUsage, nil
}

const torchIntro = `usage: %[1]s [FLAGS] SCRIPT [ARG...]

golaunch, with %[1]s's command line. Each flag may be written with _ for - and shortened while no other begins alike; PET_ and
its name in capitals is its variable. The exit code is that of the rank that failed first, where %[1]s's is always 1; restarts
are counted over all nodes, and rank 0 alone has the standard input. Flags that %[1]s does not have are given by their
variables, such as GOLAUNCH_LEASE; see golaunch --help-all.

%[2]s`

// torchCompletion prints a script that completes the program's flags.
func torchCompletion(io *cli.Console, name string, f *pflag.FlagSet, shell string) (int, error) {
	script := map[string]string{
		"bash": "complete -o default -W %[2]q %[1]s\n",
		"zsh":  "#compdef %[1]s\n_arguments '*: :(%[2]s)'\n",
		"tcsh": "complete %[1]s 'p/*/(%[2]s)/'\n",
	}[shell]
	if script == "" {
		return refuse(io, name, fmt.Errorf("--print-completion %s: bash, zsh or tcsh", shell))
	}
	io.Show(fmt.Sprintf(script, name, strings.Join(torchWords(f), " ")))
	return 0, nil
}
