package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

const intro = `Golaunch starts, watches and restarts distributed training jobs.

  golaunch --procs-per-node 4 -- python3 train.py                                  four CPU ranks here
  golaunch --gpus-per-node auto -- python3 train.py                                one rank per GPU here
  golaunch --nodes 2 --rendezvous n1:29400 --gpus-per-node 8 -- python3 train.py   the same on n1 and n2
  golaunch coordinator; golaunch agent --coordinator n0:29400                      a cluster, on n0 and on each node
  golaunch --simulate --nodes 2 --gpus-per-node 8 -- ./hello                       two nodes of 8 GPUs on this machine

`

const outro = `
Flags have variables, GOLAUNCH_ and the name in capitals: GOLAUNCH_MAX_RESTARTS for --max-restarts, but GOLAUNCH_AGENT_GPUS for the --gpus
of an agent. What is asked of a coordinator once has none, but for --coordinator and --token-file. For a job, torchrun's --nnodes,
--nproc-per-node, --rdzv-endpoint and --rdzv-id are understood, and its PET_ variables.
`

// help prints the verbs, or the flags of one.
func help(io *streams, args []string) (int, error) {
	if len(args) == 0 {
		fmt.Fprint(io.stdout, intro+"Verbs:\n")
		for _, v := range verbs() {
			if !v.hidden() {
				fmt.Fprintf(io.stdout, "  %-12s %s\n", v.name, v.summary)
			}
		}
		fmt.Fprint(io.stdout, "\nFlags of run and plan\n\n"+usages(newRunFlags(&runOptions{}))+outro)
		return 0, nil
	}
	v := find(args[0])
	if v == nil {
		return 0, fmt.Errorf("%w: no verb %q; see golaunch help", launcher.ErrUsage, args[0])
	}
	fmt.Fprintf(io.stdout, "%s\n\n%s\n", strings.TrimSpace("golaunch "+v.name+" "+v.args), v.summary)
	if v.flags != nil {
		fmt.Fprint(io.stdout, "\n"+usages(v.flags())+outro)
	}
	return 0, nil
}

// usages are the flags of a job by their groups, and then a verb's own.
func usages(f *pflag.FlagSet) string {
	var text strings.Builder
	for _, g := range append(groupNames(), "") {
		some := pflag.NewFlagSet(g, pflag.ContinueOnError)
		some.SortFlags = false
		f.VisitAll(func(flag *pflag.Flag) {
			if strings.Join(flag.Annotations[groupNote], "") == g {
				some.AddFlag(flag)
			}
		})
		if !some.HasFlags() {
			continue
		}
		if g != "" || text.Len() > 0 {
			text.WriteString(cmp.Or(g, "More") + ":\n")
		}
		text.WriteString(some.FlagUsagesWrapped(110) + "\n")
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func groupNames() (names []string) {
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// completion prints a script that completes verbs and flags; it asks nothing at completion time.
func completion(io *streams, args []string) (int, error) {
	var words []string
	for _, v := range verbs() {
		if !v.hidden() {
			words = append(words, v.name)
		}
		if v.flags != nil {
			v.flags().VisitAll(func(f *pflag.Flag) { words = append(words, "--"+f.Name) })
		}
	}
	slices.Sort(words)
	list := strings.Join(slices.Compact(words), " ")
	if len(args) == 1 {
		switch args[0] {
		case "bash":
			fmt.Fprintf(io.stdout, "complete -o default -W %q golaunch\n", list)
			return 0, nil
		case "zsh":
			fmt.Fprintf(io.stdout, "#compdef golaunch\n_arguments '*: :(%s)'\n", list)
			return 0, nil
		case "fish":
			fmt.Fprintf(io.stdout, "complete -c golaunch -a %q\n", list)
			return 0, nil
		}
	}
	return 0, fmt.Errorf("%w: completion for which shell? bash, zsh or fish", launcher.ErrUsage)
}
