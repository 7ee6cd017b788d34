package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/postmortem"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// explain --start --json prints starts; docs/json.md is its contract.
type startsExplained struct {
	jsonout.Header
	// Run is the directory of the newest run, if the given directory has several.
	Run    string         `json:"run,omitempty"`
	Starts []report.Start `json:"starts"`
}

// explainStart prints how long each phase took, for all starts in a log directory or for the newest
// start of a job.
func (o *explainOptions) explainStart(io *cli.Console, of []string) error {
	if len(of) != 1 {
		return fmt.Errorf("%w: --start takes one directory or job", launcher.ErrUsage)
	}
	e, err := o.starts(of[0])
	switch _, input := errors.AsType[*postmortem.InputError](err); {
	case input:
		return fmt.Errorf("%w: %w", launcher.ErrUsage, err)
	case err != nil:
		return err
	case o.JSON:
		return jsonout.Print(io.Stdout, &e)
	}
	e.print(io.Stdout)
	return nil
}

// starts reads a log directory. If no file has that name, it asks the coordinator for a job.
func (o *explainOptions) starts(of string) (e startsExplained, err error) {
	_, err = os.Lstat(of)
	if !errors.Is(err, fs.ErrNotExist) {
		e.Starts, e.Run, err = postmortem.Starts(of)
		return e, err
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, of)
	if err != nil {
		return e, fmt.Errorf("there is no directory %s; as a job: %w", of, err)
	}
	defer func() { _ = c.Close() }() // an error no longer matters, since the coordinator has answered
	s, err := c.Query(ctx, report.Query{Job: of})
	if err != nil {
		return e, err
	}
	if s.Jobs[0].Start == nil {
		return e, fmt.Errorf("nothing is known of a start of job %s: it has had no nodes yet, or its ranks restart on their own", of)
	}
	e.Starts = []report.Start{*s.Jobs[0].Start}
	return e, nil
}

func (e startsExplained) print(w io.Writer) {
	if e.Run != "" {
		fmt.Fprintf(w, "run       %s\n", console.Visible(e.Run))
	}
	for _, s := range e.Starts {
		fmt.Fprintf(w, "attempt %d %8.3f s in all\n", s.Attempt, s.Seconds())
		for _, p := range s.Phases {
			fmt.Fprintf(w, "          %8.3f s %v%s\n", p.Seconds, p.Phase, console.Visible(last(p)))
			if p.Phase != report.PhaseImports {
				continue
			}
			for _, m := range s.Modules {
				fmt.Fprintf(w, "            %8.3f s %s\n", m.Seconds, console.Visible(m.Name))
			}
		}
	}
}

// last names the rank or node that was the last to finish a phase.
func last(p report.StartPhase) string {
	var who []string
	if p.Rank != nil {
		who = append(who, fmt.Sprintf("rank %d", *p.Rank))
	}
	if p.Node != "" {
		who = append(who, p.Node)
	}
	if len(who) == 0 {
		return ""
	}
	return " (last: " + strings.Join(who, " on ") + ")"
}
