package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
)

const Intro = `Golaunch starts, watches and restarts distributed training jobs.

  golaunch --gpus-per-node auto -- python3 train.py                                one rank per GPU here
  golaunch --nodes 2 --rendezvous n1:29400 --gpus-per-node 8 -- python3 train.py   the same command on n1 and n2
  golaunch --simulate --nodes 2 --gpus-per-node 8 -- ./hello                       two nodes of 8 GPUs on this machine
`

const outro = `
Flags have variables, GOLAUNCH_ and the name in capitals: GOLAUNCH_MAX_RESTARTS for --max-restarts, but GOLAUNCH_AGENT_GPUS for an
agent's --num-gpus. Of the flags of status, jobs, logs, stop and swap, only --coordinator and --token-file have one. A job also takes
torchrun's --nnodes, --nproc-per-node, --rdzv-endpoint and --rdzv-id, and its PET_ variables.
`

// common lists the flags that most jobs need, by topic.
var common = []struct {
	about string
	flags []string
}{
	{"Nodes", []string{"nodes", "gpus-per-node", "procs-per-node", "spares", "simulate"}},
	{"Restarts", []string{"max-restarts", "restart", "hang-timeout"}},
	{"Output", []string{"log-dir", "ranks"}},
	{"Network", []string{"rendezvous", "hosts"}},
	{"Cluster", []string{"coordinator", "detach"}},
	{"Slurm", []string{"slurm-submit"}},
}

func NewHelp(s *Console) *cobra.Command {
	c := NewVerb("help [VERB]", "print this, or a verb's flags", Args(0, 1))
	c.RunE = func(c *cobra.Command, args []string) error {
		about, rest, err := c.Root().Find(args)
		if err != nil || len(rest) > 0 {
			return fmt.Errorf("%w: no verb %q; %ssee golaunch help", launcher.ErrUsage, args[0], DidYouMean(c.Root(), args[0]))
		}
		s.Show(HelpOf(about))
		return nil
	}
	return c
}

// HelpOf returns the text that --help prints.
func HelpOf(c *cobra.Command) string {
	if c.HasParent() {
		text := fmt.Sprintf("%s%s\n\n%s\n", c.CommandPath(), strings.TrimPrefix(c.Use, c.Name()), strings.TrimSpace(c.Short+"\n\n"+c.Long))
		if c.Flags().HasAvailableFlags() {
			text += "\n" + usages(c.Flags()) + outro
		}
		return text
	}
	text := c.Long + "\nVerbs:\n"
	for _, v := range c.Commands() {
		if !v.Hidden {
			text += fmt.Sprintf("  %-12s %s\n", v.Name(), v.Short)
		}
	}
	if all, _ := c.Flags().GetBool("help-all"); all {
		return text + "\nFlags of run and plan\n\n" + usages(c.Flags()) + outro
	}
	text += "\nThe most used flags of a job; golaunch --help-all prints all of them, and golaunch help VERB those of a verb.\n"
	for _, g := range common {
		text += "\n" + g.about + ":\n" + some(c.Flags(), func(f *pflag.Flag) bool { return slices.Contains(g.flags, f.Name) })
	}
	return text
}

// GroupNote is the annotation that names the group of a flag.
const GroupNote = "group"

// groupOf returns the group of a flag, or "".
func groupOf(flag *pflag.Flag) string { return strings.Join(flag.Annotations[GroupNote], "") }

// FlagGroups returns the groups of flags in their order.
func FlagGroups(f *pflag.FlagSet) (names []string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if g := groupOf(flag); g != "" && !slices.Contains(names, g) {
			names = append(names, g)
		}
	})
	return names
}

// usages returns the help of flags by group.
func usages(f *pflag.FlagSet) string {
	text := ""
	for _, g := range append(FlagGroups(f), "") {
		flags := some(f, func(flag *pflag.Flag) bool { return groupOf(flag) == g })
		if flags == "" {
			continue
		}
		if g != "" || text != "" {
			text += cmp.Or(g, "More") + ":\n"
		}
		text += flags + "\n"
	}
	return strings.TrimSuffix(text, "\n")
}

// some returns the help of the chosen flags.
func some(f *pflag.FlagSet, chosen func(*pflag.Flag) bool) string {
	few := pflag.NewFlagSet("", pflag.ContinueOnError)
	few.SortFlags = false
	f.VisitAll(func(flag *pflag.Flag) {
		if chosen(flag) {
			few.AddFlag(flag)
		}
	})
	return few.FlagUsagesWrapped(110)
}

// DidYouMean suggests verbs with similar spelling.
func DidYouMean(root *cobra.Command, word string) string {
	if all := root.SuggestionsFor(word); len(all) > 0 {
		return "did you mean " + strings.Join(all, " or ") + "? "
	}
	return ""
}
