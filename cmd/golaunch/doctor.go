package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// exitIll is the code of a doctor who has found an error.
const exitIll = 1

type doctorOptions struct {
	jobflags.Flags
	fabric bool
	check  fabric.Options
}

func newDoctor(s *cli.Console) *cobra.Command {
	var o doctorOptions
	c := cli.NewVerb("doctor [--json] | --fabric [flags of run]", "say what is wrong with this machine, or between the nodes of a job", nil)
	f := c.Flags()
	o.Declare(f)
	f.BoolVar(&o.fabric, "fabric", false, "check how nodes communicate, by a job with the flags of golaunch run: --nodes, --gpus-per-node, ...")
	f.StringVar(&o.check.Library, "libnccl", "", "with --fabric: load this `file`, not the libnccl.so.2 of the Python environment or the loader")
	f.DurationVar(&o.check.Limit, "test-limit", 0, "with --fabric: how long one test may take (2s; 20s with GPUs)")
	cli.CompleteFlags(c)
	var jobs string // a flag of a job that is on the command line, whatever variables say
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: it runs no command; leave out %q", launcher.ErrUsage, args)
		}
		f.Visit(func(flag *pflag.Flag) {
			if flag.Name != "json" && flag.Name != "log-dir" && flag.Name != "fabric" {
				jobs = flag.Name
			}
		})
		return nil
	}
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		switch {
		case o.fabric:
			return o.runFabric(s, f)
		case jobs != "":
			return 0, cli.BadFlag(jobs, errors.New("only with --fabric"))
		}
		return o.run(s)
	})
	return c
}

// diagnosis is the doctor's JSON; docs/json.md is its contract.
type diagnosis struct {
	jsonout.Header
	Node     string            `json:"node"`
	Findings []finding         `json:"findings"`
	Fine     []string          `json:"fine"`
	Skipped  []string          `json:"skipped"`
	Versions map[string]string `json:"versions"`
}

type finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// run says what is wrong with this machine.
func (o *doctorOptions) run(io *cli.Console) (int, error) {
	d, err := diagnose(context.Background(), o.Job.Output.LogDir)
	if err != nil {
		return 0, err
	}
	if o.JSON {
		err = jsonout.Print(io.Stdout, &d)
	} else {
		err = d.print(io.Stdout)
	}
	if slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Severity == string(health.Error) }) {
		return exitIll, err
	}
	return 0, err
}

func diagnose(ctx context.Context, logDir string) (diagnosis, error) {
	name, err := os.Hostname()
	if err != nil {
		return diagnosis{}, fmt.Errorf("cannot name this machine: %w", err)
	}
	system := health.Here(logDir)
	system.Holds = proc.Holds
	facts := health.Collect(ctx, system)
	findings := health.Check(facts)
	summary := health.Summarize(facts, findings)
	d := diagnosis{
		Node: name, Versions: facts.Versions, Fine: summary.Fine, Skipped: summary.Skipped,
	}
	for _, f := range findings {
		w := f.Warnable
		d.Findings = append(d.Findings, finding{w.Code, string(w.Severity), w.Title, f.Text, w.Remedy})
	}
	return d, nil
}

// print is for people: a line or two for each finding, and one for each of the rest.
func (d diagnosis) print(w io.Writer) error {
	var b strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%s: %s [%s]\n  found   %s\n  remedy  %s\n\n", f.Severity, f.Title, f.Code, f.Text, f.Remedy)
	}
	if len(d.Findings) == 0 {
		fmt.Fprintf(&b, "%s: nothing is wrong\n\n", d.Node)
	}
	fmt.Fprintf(&b, "fine         %s\n", strings.Join(d.Fine, ", "))
	if len(d.Skipped) > 0 {
		fmt.Fprintf(&b, "not checked  %s\n", strings.Join(d.Skipped, ", "))
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(d.Versions)) {
		versions = append(versions, name+" "+d.Versions[name])
	}
	fmt.Fprintf(&b, "versions     %s\n", strings.Join(versions, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}
