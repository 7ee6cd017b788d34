package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/postmortem"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// exitUnknown is the exit code when no known cause is found.
const exitUnknown = 1

type explainOptions struct {
	cli.ClusterFlags
	start bool
	rules string
	code  int
}

func newExplain(s *cli.Console) *cobra.Command {
	var o explainOptions
	c := cli.NewVerb("explain FILE|DIR... | --start DIR|JOB", "say what a failure means, from the logs, or where a start's time went", cli.Args(1, maxFiles))
	f := c.Flags()
	o.Declare(f)
	f.StringVar(&o.rules, "failure-rules", "", jobflags.RulesUsage)
	f.IntVar(&o.code, "exit", verdict.NotKnown, "exit `code` of the ranks, if the logs do not have it; -1 is unknown")
	f.BoolVar(&o.start, "start", false, "say where the time of each start went, from a job's log directory, or of a job's newest start")
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, args) })
	return c
}

// explain --json prints an explanation; docs/json.md is its contract.
type explanation struct {
	jsonout.Header
	Cause  string `json:"cause"`
	Title  string `json:"title"`
	Action string `json:"action"`
	Quote  string `json:"quote,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Node   string `json:"node,omitempty"`
	Rank   *int   `json:"rank,omitempty"`
	Try    *int   `json:"attempt,omitempty"`
	Victim bool   `json:"victim"`
	Remedy string `json:"remedy"`
	// Decided is true if the coordinator decided this while the job ran, and false if explain did.
	Decided bool    `json:"decided"`
	Ranks   []group `json:"ranks"`
	// Run is the directory of the newest run, if the given directory has several.
	Run string `json:"run,omitempty"`

	at    time.Time
	words string
}

// group has the ranks with the same cause.
type group struct {
	Cause  string `json:"cause"`
	Victim bool   `json:"victim"`
	Ranks  string `json:"ranks"`
}

// run prints the explanation of a failure.
func (o *explainOptions) run(io *cli.Console, paths []string) (int, error) {
	if o.code == 0 || o.code < verdict.NotKnown || o.code > 255 {
		return 0, cli.BadFlag("exit", errors.New("1 to 255"))
	}
	if o.start {
		return 0, o.explainStart(io, paths)
	}
	judged, err := o.judge(paths)
	if _, input := errors.AsType[*postmortem.InputError](err); input {
		return 0, fmt.Errorf("%w: %w", launcher.ErrUsage, err)
	}
	if err != nil {
		return 0, err
	}
	e := newExplanation(judged)
	if o.JSON {
		err = jsonout.Print(io.Stdout, &e)
	} else {
		e.print(io.Stdout)
	}
	if e.Cause == verdict.Unknown {
		return exitUnknown, err
	}
	return 0, err
}

func (o *explainOptions) judge(paths []string) ([]postmortem.Judged, error) {
	rules, _, err := postmortem.ReadRules(o.rules)
	if err != nil {
		return nil, err
	}
	return postmortem.Judge(paths, o.code, rules)
}

// maxFiles is the number of paths that explain accepts.
const maxFiles = 1 << 16

// newExplanation takes the root cause from the first of judged, and groups the ranks by cause.
func newExplanation(judged []postmortem.Judged) explanation {
	j := judged[0]
	e := explanation{
		Cause: j.Cause, Title: j.Title, Action: string(j.Action), Quote: j.Quote, File: j.File, Node: j.Node, Victim: j.Victim,
		Remedy: j.Remedy, Decided: j.Decided, Run: j.Run, at: j.At, words: j.Words,
	}
	if j.File != "" {
		e.Line = j.Line
	}
	if j.Rank != postmortem.NoRank {
		e.Rank, e.Try = &j.Rank, &j.Attempt
	}
	ranks := map[group][]int{}
	var order []group
	for _, j := range judged {
		if j.Rank == postmortem.NoRank {
			continue
		}
		g := group{Cause: j.Cause, Victim: j.Victim}
		if ranks[g] == nil {
			order = append(order, g)
		}
		ranks[g] = append(ranks[g], j.Rank)
	}
	for _, g := range order {
		e.Ranks = append(e.Ranks, group{g.Cause, g.Victim, units.Ranks("", slices.Compact(slices.Sorted(slices.Values(ranks[g]))))})
	}
	return e
}

// print writes the explanation. Text from logs and file names is escaped, since it may hold
// terminal sequences.
func (e explanation) print(w io.Writer) {
	for _, text := range []*string{&e.Quote, &e.Title, &e.File, &e.Node, &e.Run} {
		*text = console.Visible(*text)
	}
	if e.Run != "" {
		fmt.Fprintf(w, "run     %s\n", e.Run)
	}
	fmt.Fprintf(w, "cause   %s: %s\n", e.Cause, cmp.Or(e.Quote, e.Title))
	if e.Quote != "" {
		fmt.Fprintf(w, "means   %s\n", e.Title)
	}
	if e.File != "" {
		fmt.Fprintf(w, "at      %s:%d\n", e.File, e.Line)
	}
	fmt.Fprintf(w, "advice  %s: %s\n", e.Action, e.Remedy)
	if e.Rank != nil {
		fmt.Fprintf(w, "%-7s rank %d%s, attempt %d", e.role(), *e.Rank, on(e.Node), *e.Try)
		if !e.at.IsZero() {
			fmt.Fprintf(w, ", at %s", e.at.Local().Format("2006-01-02 15:04:05.000 MST"))
		}
		fmt.Fprintln(w)
	}
	for _, g := range e.Ranks {
		switch {
		case e.Rank != nil && g.Ranks == fmt.Sprint(*e.Rank): // an earlier line has named the rank
		case g.Victim:
			fmt.Fprintf(w, "echoes  ranks %s: %s\n", g.Ranks, g.Cause)
		default:
			fmt.Fprintf(w, "also    ranks %s: %s\n", g.Ranks, g.Cause)
		}
	}
	if e.words != "" {
		fmt.Fprintln(w, "words")
	}
	for line := range strings.Lines(e.words) {
		fmt.Fprintf(w, "    %s\n", console.Visible(strings.TrimRight(line, "\r\n")))
	}
}

// role is the label of the line about the rank.
func (e explanation) role() string {
	if e.Victim {
		return "seen by"
	}
	return "root"
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}
