package main

import (
	"errors"
	"fmt"
	"io"
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
	// Run is the newest run's directory in one that has several.
	Run    string         `json:"run,omitempty"`
	Starts []report.Start `json:"starts"`
}

// explainStart prints where the time of the starts in a log directory went.
func (o *explainOptions) explainStart(io *cli.Console, paths []string) (err error) {
	if len(paths) != 1 {
		return fmt.Errorf("%w: --start takes one directory", launcher.ErrUsage)
	}
	var e startsExplained
	e.Starts, e.Run, err = postmortem.Starts(paths[0])
	switch _, input := errors.AsType[*postmortem.InputError](err); {
	case input:
		return fmt.Errorf("%w: %w", launcher.ErrUsage, err)
	case err != nil:
		return err
	case o.json:
		return jsonout.Print(io.Stdout, &e)
	}
	e.print(io.Stdout)
	return nil
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

// last says with what a phase ended.
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
