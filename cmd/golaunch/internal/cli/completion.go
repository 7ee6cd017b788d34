package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// choices lists the values of flags that have few possible values.
var choices = map[string][]cobra.Completion{
	"strategy":       {"STRICT_PACK", "PACK", "SPREAD", "STRICT_SPREAD"},
	"order":          {"ip", "name", "slurm", "topology", "file:"},
	"env-preset":     {"auto", "efa", "efa-classic", "ib", "roce", "tcp", "none"},
	"gpu-visibility": {"job", "own"},
	"bind":           {"auto", "none", "numa", "socket", "l3", "core"},
	"store":          {"golaunch", "proxy", "rank0"},
	"restart":        {"job", "node", "rank", "never"},
	"notice-signal":  {"USR1", "USR2"},
	"stop-signal":    {"TERM", "INT", "QUIT", "HUP", "USR1", "USR2"},
	"spot-notice":    {"aws", "gcp", "azure"},
	"preflight":      {"off", "warn", "exclude", "fail"},
	"bundle":         {"on", "off"},
	"scheduler":      {"none"},
	"gpus-per-node":  {"auto"},
	"nproc-per-node": {"gpu", "cpu", "auto"},
}

// prepareCompletion lets the shell complete the values of flags, and removes the backquotes around
// value names from the help that shells show.
func prepareCompletion(c *cobra.Command) {
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		_, flag.Usage = pflag.UnquoteUsage(flag)
		if values := choices[flag.Name]; values != nil {
			// The only possible errors are an unknown flag and a second registration.
			_ = c.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, verb := range c.Commands() {
		prepareCompletion(verb)
	}
}

// CompleteCommand completes files after "--".
func CompleteCommand(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if c.ArgsLenAtDash() < 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// AskTimeout bounds the wait for a coordinator's answer.
const AskTimeout = 2 * time.Second

// completeFrom completes a verb's only argument with names from the coordinator, or with nothing if
// the coordinator does not answer.
func (o *ClusterFlags) completeFrom(q report.Query, names func(report.Status) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), AskTimeout)
		defer cancel()
		if len(args) > 0 || SetFromEnv(c.Flags()) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := launcher.Connect(ctx, o.Coordinator, o.TokenFile)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		s, err := client.Query(ctx, q)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, name := range names(s) {
			if strings.HasPrefix(name, begun) {
				all = append(all, name)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteJobs completes the IDs of unfinished jobs and, if over is true, of finished jobs too.
func (o *ClusterFlags) CompleteJobs(over bool) cobra.CompletionFunc {
	return o.completeFrom(report.Query{Jobs: true, Open: !over, Brief: true}, func(s report.Status) (all []string) {
		for _, j := range s.Jobs {
			all = append(all, j.ID)
		}
		return all
	})
}

func (o *ClusterFlags) CompleteNodes() cobra.CompletionFunc {
	return o.completeFrom(report.Query{Open: true, Brief: true}, func(s report.Status) (all []string) {
		for _, n := range s.Nodes {
			all = append(all, n.Name)
		}
		return all
	})
}
