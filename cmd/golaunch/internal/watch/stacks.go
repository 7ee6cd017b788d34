package watch

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type stacksOptions struct {
	cli.ClusterFlags
	timeout time.Duration
}

// NewStacks returns the verb that prints the Python stacks of a job's ranks.
func NewStacks(s *cli.Console) *cobra.Command {
	var o stacksOptions
	c := cli.NewVerb("stacks JOB", "print the Python stacks of a job's ranks as one tree", cli.Args(1, 1))
	o.Declare(c.Flags())
	c.Flags().DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for nodes")
	c.ValidArgsFunction = o.CompleteJobs(false)
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return o.run(s, args[0]) })
	return c
}

// width is the terminal's width; without a terminal it is wide enough for a log line.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 160
}

// stacks --json prints this; docs/json.md is its contract.
type StacksShown struct {
	jsonout.Header
	Job    string          `json:"job"`
	Stacks launcher.Stacks `json:"stacks"`
}

// run prints the tree. The exit code is 1 if some ranks are missing.
func (o *stacksOptions) run(out *cli.Console, id string) (int, error) {
	if o.timeout <= 0 {
		return 0, cli.BadFlag("timeout", errors.New("more than 0"))
	}
	ctx := context.Background()
	c, err := launcher.ConnectJob(ctx, o.Coordinator, o.TokenFile, id)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	tree, err := c.Stacks(ctx, id, o.timeout)
	if err != nil {
		return 0, err
	}
	code := 0
	if len(tree.Missing) > 0 {
		code = exitWrong
	}
	if o.JSON {
		return code, jsonout.Print(out.Stdout, &StacksShown{Job: id, Stacks: tree})
	}
	for _, why := range tree.Missing {
		out.Say(why)
	}
	if ranks, _ := tree.Ranks(); ranks == 0 && code == 0 {
		out.Say("no rank of job " + id + " runs")
		return 0, nil
	}
	return code, tree.Text(out.Stdout, width(out.Stdout))
}

// stacksOf returns the text that golaunch stacks prints.
func stacksOf(ctx context.Context, source view.Source, job string) (string, error) {
	asked, ok := source.(interface {
		Stacks(ctx context.Context, job string, within time.Duration) (launcher.Stacks, error)
	})
	if !ok {
		return "", errors.New("its coordinator cannot be asked for them")
	}
	tree, err := asked.Stacks(ctx, job, stacksLimit)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, why := range tree.Missing {
		b.WriteString(why + "\n")
	}
	if ranks, _ := tree.Ranks(); ranks == 0 {
		b.WriteString("no rank of job " + job + " runs a program whose stack can be read\n")
	}
	err = tree.Text(&b, stacksWidth)
	return b.String(), err
}

// On the page, nodes have stacksLimit to answer, and lines have stacksWidth characters.
const (
	stacksLimit = 10 * time.Second
	stacksWidth = 120
)
