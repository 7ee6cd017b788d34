// Golaunch starts, watches and restarts distributed training jobs.
//
//	golaunch --nodes 2 --gpus-per-node 8 -- python main.py
//
// See README.md for its verbs, flags and exit codes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/internal/hidden"
	"github.com/golaunch/golaunch/internal/speaker"
	"github.com/golaunch/golaunch/launcher"
)

// Exit codes of golaunch's own, beside the root cause's: those of timeout(1) and docker-run(1).
const (
	exitUsage   = 2
	exitFailure = 125
)

// verb is one of golaunch's commands. Its run returns the exit code, or an error that main prints. Those that golaunch itself calls, on
// other machines and as ranks, begin with '_' and are not shown.
type verb struct {
	name, args, summary string
	// flags are for help; nil for a verb without any.
	flags func() *pflag.FlagSet
	run   func(io *streams, args []string) (int, error)
}

func (v *verb) hidden() bool { return v != nil && v.name[0] == '_' }

// streams are the process's own, so that a verb can be run in a test.
type streams struct {
	stdout, stderr io.Writer
}

// say prints words for a person.
func (s *streams) say(text string) { fmt.Fprintf(s.stderr, "golaunch: %s\n", text) }

func (s *streams) warn(err error) { s.say("warning: " + err.Error()) }

// flagsOf are the flags that a verb declares into its options.
func flagsOf[O any](declare func(*O) *pflag.FlagSet) func() *pflag.FlagSet {
	return func() *pflag.FlagSet { return declare(new(O)) }
}

func verbs() []verb {
	return []verb{
		{"run", "[flags] -- COMMAND [ARG...]", "run a job (the default verb)", flagsOf(newRunFlags), run},
		{"coordinator", "[--listen HOST:PORT]", "be the head of a cluster that jobs share", flagsOf(newCoordinatorFlags), coordinator},
		{"agent", "--coordinator HOST:PORT [--gpus N] | --drain", "be a node of a cluster, or ask one to leave", flagsOf(newAgentFlags), agent},
		{"status", "[JOB]", "print a cluster's nodes and jobs", flagsOf(newStatusFlags), status},
		{"jobs", "", "print a cluster's jobs", flagsOf(newJobsFlags), jobs},
		{"logs", "JOB [-f] [--rank R] [--attempt K]", "print what the ranks of a job wrote", flagsOf(newLogsFlags), logs},
		{"explain", "FILE|DIR...", "say what a failure means, from its logs", flagsOf(newExplainFlags), explain},
		{"swap", "NODE [--within TIME]", "have the jobs on a node go on elsewhere, and the node leave", flagsOf(newSwapFlags), swap},
		{"stop", "JOB | --all", "stop jobs, and wait until nothing of them lives", flagsOf(newStopFlags), stop},
		{"plan", "[flags] [-- COMMAND [ARG...]]", "show where the ranks would run, and with which environment", flagsOf(newPlanFlags), plan},
		{"env", "[flags]", "show what a rank on this machine would get, and what is known of its network", flagsOf(newEnvFlags), env},
		{"doctor", "[--json] | --fabric [flags]", "say what is wrong with this machine, or between the nodes of a job", flagsOf(newDoctorFlags), doctor},
		{"torchrun", "[FLAGS] SCRIPT [ARG...]", "run a job from torchrun's command line, as a link named torchrun does", flagsOf(newTorchFlags), torchrun},
		{"version", "[--json]", "print the version", nil, version},
		{"completion", "bash|zsh|fish", "print a shell's completion script", nil, completion},
		{"help", "[VERB]", "print this, or a verb's flags", nil, help},
		{hidden.Node, "", "be a node of a job that was started on another machine", nil, node},
		{hidden.Fabric, "OPTIONS", "be a rank of doctor --fabric", nil, fabricRank},
	}
}

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "torchrun" && !(len(args) > 0 && find(args[0]).hidden()) {
		args = os.Args
		args[0] = "torchrun"
	}
	os.Exit(Main(&streams{os.Stdout, os.Stderr}, args))
}

// Main runs golaunch with the given arguments and returns its exit code.
func Main(io *streams, args []string) int {
	name, rest := "run", args
	if len(args) > 0 {
		if v := find(args[0]); v != nil {
			name, rest = args[0], args[1:]
		}
	}
	code, err := find(name).run(io, rest)
	if err == nil {
		return code
	}
	last := speaker.New(nil) // nobody may read it
	last.Say(func() { fmt.Fprintf(io.stderr, "golaunch: %v\n", err) })
	last.Finish(speaker.Patience)
	if code != 0 {
		return code
	}
	if errors.Is(err, launcher.ErrUsage) {
		return exitUsage
	}
	return exitFailure
}

// node is the agent of a job that golaunch leads on another machine.
func node(_ *streams, args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("%w: golaunch starts this by itself on other machines", launcher.ErrUsage)
	}
	return hidden.ServeNode(), nil
}

func find(name string) *verb {
	for _, v := range verbs() {
		if v.name == name {
			return &v
		}
	}
	return nil
}
