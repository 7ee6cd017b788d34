// Package jobflags turns the flags of the command line into a launcher.Job.
package jobflags

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Flags are the flags of a job as they were given.
type Flags struct {
	Job       launcher.Job
	JSON      bool
	prefix    bool
	resources resources
	hosts     string
	hostfile  string
	see       string
	Backoff   string
	notice    string
	stop      string
	ranks     string
}

// resources are the flags that say how many ranks run where.
type resources struct {
	nodes    string
	gpus     string
	perRank  string
	gpuIDs   string
	procs    string
	nproc    string
	strategy string
	order    string
}

// noTerminationLog is the termination log of a job that writes none.
const noTerminationLog = "none"

// Complete turns the flags into the job's fields.
func (o *Flags) Complete(f *pflag.FlagSet, command []string) (err error) {
	defer func() { err = cli.NameVariable(f, err) }()
	j := &o.Job
	j.Command = command
	j.Ranks.Visibility = rankenv.Visibility(o.see)
	switch {
	case j.Stopping.Grace < 0:
		return cli.BadFlag("grace", fmt.Errorf("%s: at least 0s", j.Stopping.Grace))
	case j.Stopping.Grace == 0:
		j.Stopping.Grace = -1
	}
	if j.Resources.GrowAfter == 0 {
		j.Resources.GrowAfter = -1
	}
	if f.Changed("prefix") {
		j.Output.Prefix = &o.prefix
	}
	if f.Changed("termination-log") && j.Output.TerminationLog == "" {
		j.Output.TerminationLog = noTerminationLog
	}
	if j.Resources.MinNodes, j.Resources.MaxNodes, err = ParseNodes(o.resources.nodes); err != nil {
		return cli.BadFlag("nodes", err)
	}
	if j.Resources.Strategy, err = placement.ParseStrategy(o.resources.strategy); err != nil {
		return cli.BadFlag("strategy", err)
	}
	if j.Resources.Order, err = parseOrder(o.resources.order); err != nil {
		return cli.BadFlag("order", err)
	}
	if j.Restarts.BackoffMin, j.Restarts.BackoffMax, err = parseBackoff(o.Backoff); err != nil {
		return cli.BadFlag("backoff", err)
	}
	if j.Stopping.NoticeSignal, err = parseSignal(o.notice, "USR1", "USR2"); err != nil {
		return cli.BadFlag("notice-signal", err)
	}
	if j.Stopping.StopSignal, err = parseSignal(o.stop, "TERM", "INT", "QUIT", "HUP", "USR1", "USR2"); err != nil {
		return cli.BadFlag("stop-signal", err)
	}
	if j.Stopping.Linger < 0 {
		return cli.BadFlag("linger", fmt.Errorf("%s: at least 0s", j.Stopping.Linger))
	}
	if j.Output.Ranks, err = ParseRanks(o.ranks); err != nil {
		return cli.BadFlag("ranks", err)
	}
	for _, flag := range []string{"hosts", "hostfile"} { // with an empty variable, this must not become a job of one machine
		if f.Changed(flag) && f.Lookup(flag).Value.String() == "" {
			return cli.BadFlag(flag, errors.New("it is empty"))
		}
	}
	if j.Network.Hosts, err = launcher.ParseHosts(o.hosts, o.hostfile); err != nil {
		return err
	}
	err = errors.Join(o.ChooseGPUs(), o.perNode())
	if j.Resources.PerGPU > 1 && !f.Changed("gpu-visibility") {
		j.Ranks.Visibility = "" // the flag's default is for ranks that each have a GPU of their own
	}
	return err
}

// NoCoordinator is the value of --coordinator that runs the job on this machine without a
// coordinator.
const NoCoordinator = "none"

// ChooseGPUs applies --gpu-ids to each node of the cluster, or to this machine.
func (o *Flags) ChooseGPUs() error {
	o.Job.Cluster.GPUs, o.Job.Resources.OwnGPUs = nil, ""
	if c := o.Job.Cluster.Coordinator; c == "" || c == NoCoordinator {
		o.Job.Resources.OwnGPUs = o.resources.gpuIDs
		return nil
	}
	for text := range strings.SplitSeq(o.resources.gpuIDs, ",") {
		if o.resources.gpuIDs == "" {
			break
		}
		index, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return cli.BadFlag("gpu-ids", fmt.Errorf("%q: on a cluster an index, such as 0,2,5", text))
		}
		o.Job.Cluster.GPUs = append(o.Job.Cluster.GPUs, index)
	}
	return nil
}

// perNode sets how many ranks a node has. Only one of its three flags may be given.
func (o *Flags) perNode() (err error) {
	r := &o.Job.Resources
	if o.resources.perRank != "" {
		if r.PerGPU, err = placement.ParsePerGPU(o.resources.perRank); err != nil {
			return cli.BadFlag("gpus-per-rank", err)
		}
	}
	switch {
	case (o.resources.gpus != "" && o.resources.procs != "") || (o.resources.nproc != "" && o.resources.gpus+o.resources.procs != ""):
		return fmt.Errorf("%w: give only one of --gpus-per-node, --procs-per-node and --nproc-per-node", launcher.ErrUsage)
	case o.resources.gpuIDs != "" && o.resources.gpus+o.resources.procs+o.resources.nproc == "":
		r.GPU, r.PerNode = true, []int{placement.AllGPUs}
	case o.resources.gpus != "":
		r.GPU = true
		if r.PerNode, err = placement.ParsePerNode(o.resources.gpus); err != nil {
			return cli.BadFlag("gpus-per-node", err)
		}
		for i, gpus := range r.PerNode {
			if gpus != placement.AllGPUs && r.PerGPU > 1 {
				r.PerNode[i] = gpus * r.PerGPU
			}
		}
	case o.resources.procs != "":
		if r.PerNode, err = placement.ParsePerNode(o.resources.procs); err != nil || r.PerNode[0] == placement.AllGPUs {
			return cli.BadFlag("procs-per-node", fmt.Errorf("%q: a number from 1 to 65535, or a list such as 4,8,2", o.resources.procs))
		}
	case o.resources.nproc != "":
		if r.PerNode, r.GPU, err = gpu.TorchRanks(context.Background(), o.resources.nproc); err != nil {
			return cli.BadFlag("nproc-per-node", err)
		}
	}
	return nil
}

// ParseNodes parses N or MIN:MAX.
func ParseNodes(text string) (low, high int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, ranged := strings.Cut(text, ":")
	low, err = strconv.Atoi(first)
	high = low
	if err == nil && ranged {
		high, err = strconv.Atoi(second)
	}
	if err != nil || low < 1 || high < low {
		return 0, 0, fmt.Errorf("%q: a number of at least 1, or MIN:MAX with MIN not above MAX", text)
	}
	return low, high, nil
}

// parseOrder parses ip, name, slurm, topology or file:PATH. The file has one node name a line.
func parseOrder(text string) (placement.Order, error) {
	path, isFile := strings.CutPrefix(text, "file:")
	switch {
	case text == "ip" || text == "name" || text == "slurm" || text == "topology":
		return placement.Order{By: text}, nil
	case !isFile:
		return placement.Order{}, fmt.Errorf("%q: ip, name, slurm, topology or file:PATH", text)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return placement.Order{}, err
	}
	return placement.Order{By: "list", List: strings.Fields(string(data))}, nil
}

func parseBackoff(text string) (low, high time.Duration, err error) {
	first, second, ranged := strings.Cut(text, ":")
	low, err = time.ParseDuration(first)
	high = low
	if err == nil && ranged {
		high, err = time.ParseDuration(second)
	}
	if err != nil || low < 0 || high < low {
		return 0, 0, fmt.Errorf("%q: MIN:MAX such as 1s:60s", text)
	}
	return low, high, nil
}

func parseSignal(text string, names ...string) (syscall.Signal, error) {
	short := strings.TrimPrefix(text, "SIG")
	switch {
	case text == "":
		return 0, nil
	case slices.Contains(names, short):
		return unix.SignalNum("SIG" + short), nil
	}
	return 0, fmt.Errorf("%q: %s", text, strings.Join(names, ", "))
}

// ParseRanks parses ranks such as 0,8-15.
func ParseRanks(text string) ([]report.Span, error) {
	if text == "" {
		return nil, nil
	}
	var spans []report.Span
	for part := range strings.SplitSeq(text, ",") {
		first, second, ranged := strings.Cut(part, "-")
		if !ranged {
			second = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(second, 10, 31)
		if err != nil || err2 != nil || to < from || to == math.MaxInt32 {
			return nil, fmt.Errorf("%q: ranks such as 0,8-15", part)
		}
		spans = append(spans, report.Span{From: int(from), To: int(to)})
	}
	return spans, nil
}

// AfterDashes refuses arguments before "--". Only arguments after it are a command, so a misspelt
// verb never starts a job.
func AfterDashes(c *cobra.Command, args []string) error {
	if len(args) == 0 || c.ArgsLenAtDash() == 0 {
		return nil
	}
	hint := ""
	if !c.HasParent() {
		hint = cli.DidYouMean(c, args[0])
	}
	return fmt.Errorf("%w: %q is no verb; %sa command begins after \"--\": golaunch [flags] -- %s ...", launcher.ErrUsage, args[0], hint, args[0])
}

// window is a number of events in a time: N or N/TIME.
type window struct {
	number *int
	time   *time.Duration
}

func (w window) Type() string { return "N" }

func (w window) String() string {
	switch {
	case w.number == nil:
		return ""
	case *w.time == 0:
		return strconv.Itoa(*w.number)
	}
	return fmt.Sprintf("%d/%v", *w.number, *w.time)
}

func (w window) Set(text string) error {
	number, limit, limited := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	var t time.Duration
	if err == nil && limited {
		t, err = time.ParseDuration(limit)
	}
	if err != nil || n < 0 || limited && t <= 0 {
		return fmt.Errorf("%q: a number of at least 0, or N/TIME such as 3/1h", text)
	}
	*w.number, *w.time = n, t
	return nil
}

// exitCodes is the value of a flag in the form ENDING=CODE,ENDING=CODE.
type exitCodes struct{ codes *map[report.Ending]int }

func (e exitCodes) Type() string { return "ENDING=CODE" }

func (e exitCodes) String() string { return "" }

func (e exitCodes) Set(text string) error {
	codes := map[report.Ending]int{}
	for pair := range strings.SplitSeq(text, ",") {
		ending, number, _ := strings.Cut(pair, "=")
		code, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%q: ENDING=CODE such as preempted=75", pair)
		}
		codes[report.Ending(ending)] = code
	}
	*e.codes = codes
	return nil
}
