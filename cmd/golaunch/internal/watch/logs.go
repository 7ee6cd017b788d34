package watch

import (
	"bytes"
	"context"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

type logsOptions struct {
	cli.ClusterFlags
	follow  bool
	ranks   string
	attempt int
	prefix  bool
	fold    string
}

// NewLogs returns the verb that prints the output of a job's ranks.
func NewLogs(s *cli.Console) *cobra.Command {
	var o logsOptions
	c := cli.NewVerb("logs JOB [-f] [--ranks R] [--attempt K]", "print what the ranks of a job wrote", cli.Args(1, 1))
	f := c.Flags()
	o.Declare(f)
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the job is over")
	f.StringVar(&o.ranks, "ranks", "", "only these ranks: `0,8-15`")
	f.IntVar(&o.attempt, "attempt", -1, "only this attempt; -1 is all")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank")
	f.StringVar(&o.fold, "fold", "auto", jobflags.FoldUsage)
	c.ValidArgsFunction = o.CompleteJobs(true)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, args[0]) })
	return c
}

// run prints the output of a job's ranks from all nodes.
func (o *logsOptions) run(io *cli.Console, id string) (int, error) {
	ranks, err := jobflags.ParseRanks(o.ranks)
	if err != nil {
		return 0, cli.BadFlag("ranks", err)
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, id)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filter := report.LogFilter{Ranks: ranks, Attempt: max(-1, o.attempt), Follow: o.follow}
	missing, err := o.print(ctx, io, c, id, filter)
	if err == nil && missing {
		return cli.ExitFailure, nil
	}
	return 0, err
}

// print writes text for people, or JSON.
func (o *logsOptions) print(ctx context.Context, io *cli.Console, c *launcher.Client, id string, f report.LogFilter) (missing bool, err error) {
	if !o.JSON {
		return c.Print(ctx, id, f, launcher.Output{Stdout: io.Stdout, Stderr: io.Stderr, Prefix: &o.prefix, Fold: o.fold})
	}
	return printLines(c.Logs(ctx, id, f), io.Stdout)
}

// logs --json prints lines of ranks, and says which output is missing; docs/json.md is their
// contract.
type (
	Line struct {
		jsonout.Header
		Node    string `json:"node"`
		Rank    int    `json:"rank"`
		Attempt int    `json:"attempt"`
		Stream  string `json:"stream"`
		Text    string `json:"text"`
	}
	MissingOutput struct {
		jsonout.Header
		Missing string `json:"missing"`
	}
)

// maxLine bounds a line in bytes. A longer line is printed in pieces.
const maxLine = 1 << 20

// lines joins chunks of log files into lines.
type lines struct {
	out io.Writer
	// open holds the unfinished line of each file.
	open map[Line][]byte
}

// printLines prints a job's output as JSON, one object a line, and reports whether some output is
// missing.
func printLines(chunks iter.Seq2[report.LogChunk, error], w io.Writer) (missing bool, err error) {
	l := lines{w, map[Line][]byte{}}
	for chunk, err := range chunks {
		if err == nil && chunk.Missing != "" {
			missing, err = true, l.write(&MissingOutput{Missing: chunk.Missing})
		} else if err == nil {
			file := Line{Node: chunk.Node, Rank: chunk.Rank, Attempt: chunk.Attempt, Stream: "stdout"}
			if chunk.Stream == 2 {
				file.Stream = "stderr"
			}
			err = l.add(file, chunk.Data)
		}
		if err != nil {
			return missing, err
		}
	}
	return missing, l.end()
}

func (l lines) add(file Line, data []byte) error {
	rest := append(l.open[file], data...)
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole && len(rest) < maxLine {
			l.open[file] = rest
			return nil
		}
		if err := l.print(file, line); err != nil {
			return err
		}
		rest = after
	}
}

// end prints the unfinished lines.
func (l lines) end() error {
	for file, text := range l.open {
		if len(text) > 0 {
			if err := l.print(file, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l lines) print(file Line, text []byte) error {
	file.Text = string(text)
	return l.write(&file)
}

func (l lines) write(r jsonout.Record) error {
	line, err := jsonout.Line(r)
	if err == nil {
		_, err = l.out.Write(line)
	}
	return err
}
