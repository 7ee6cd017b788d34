package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// options are the flags of a job as they were given.
type options struct {
	job      launcher.Job
	nodes    string
	hosts    string
	hostfile string
	gpus     string
	gpuIDs   string
	procs    string
	nproc    string
	strategy string
	order    string
	see      string
	backoff  string
	notice   string
	stop     string
	ranks    string
	prefix   bool
	json     bool
}

// noTerminationLog is a job's that is not written.
const noTerminationLog = "none"

// complete turns the text of flags into the job's fields.
func (o *options) complete(f *pflag.FlagSet, command []string) (err error) {
	defer func() { err = cli.NameVariable(f, err) }()
	j := &o.job
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
	if j.Resources.MinNodes, j.Resources.MaxNodes, err = parseNodes(o.nodes); err != nil {
		return cli.BadFlag("nodes", err)
	}
	if j.Resources.Strategy, err = placement.ParseStrategy(o.strategy); err != nil {
		return cli.BadFlag("strategy", err)
	}
	if j.Resources.Order, err = parseOrder(o.order); err != nil {
		return cli.BadFlag("order", err)
	}
	if j.Restarts.BackoffMin, j.Restarts.BackoffMax, err = parseBackoff(o.backoff); err != nil {
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
	if j.Output.Ranks, err = parseSpans(o.ranks); err != nil {
		return cli.BadFlag("ranks", err)
	}
	for _, flag := range []string{"hosts", "hostfile"} { // a variable that is empty must not make this a job of one machine
		if f.Changed(flag) && f.Lookup(flag).Value.String() == "" {
			return cli.BadFlag(flag, errors.New("it is empty"))
		}
	}
	if j.Network.Hosts, err = launcher.ParseHosts(o.hosts, o.hostfile); err != nil {
		return err
	}
	return errors.Join(o.chooseGPUs(), o.perNode())
}

// noCoordinator is the --coordinator of a job that runs here.
const noCoordinator = "none"

// chooseGPUs has --gpu-ids mean GPUs of each node of a cluster, or of this machine.
func (o *options) chooseGPUs() error {
	o.job.Cluster.GPUs, o.job.Resources.OwnGPUs = nil, ""
	if c := o.job.Cluster.Coordinator; c == "" || c == noCoordinator {
		o.job.Resources.OwnGPUs = o.gpuIDs
		return nil
	}
	for text := range strings.SplitSeq(o.gpuIDs, ",") {
		if o.gpuIDs == "" {
			break
		}
		index, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return cli.BadFlag("gpu-ids", fmt.Errorf("%q: on a cluster an index, such as 0,2,5", text))
		}
		o.job.Cluster.GPUs = append(o.job.Cluster.GPUs, index)
	}
	return nil
}

// perNode settles how many ranks a node has from the one flag of three that was given.
func (o *options) perNode() (err error) {
	r := &o.job.Resources
	switch {
	case (o.gpus != "" && o.procs != "") || (o.nproc != "" && o.gpus+o.procs != ""):
		return fmt.Errorf("%w: give one of --gpus-per-node, --procs-per-node and --nproc-per-node", launcher.ErrUsage)
	case o.gpuIDs != "" && o.gpus+o.procs+o.nproc == "":
		r.GPU, r.PerNode = true, []int{placement.AllGPUs}
	case o.gpus != "":
		r.GPU = true
		if r.PerNode, err = placement.ParsePerNode(o.gpus); err != nil {
			return cli.BadFlag("gpus-per-node", err)
		}
	case o.procs != "":
		if r.PerNode, err = placement.ParsePerNode(o.procs); err != nil || r.PerNode[0] == placement.AllGPUs {
			return cli.BadFlag("procs-per-node", fmt.Errorf("%q: a number from 1 to 65535, or a list such as 4,8,2", o.procs))
		}
	case o.nproc != "":
		if r.PerNode, r.GPU, err = gpu.TorchRanks(context.Background(), o.nproc); err != nil {
			return cli.BadFlag("nproc-per-node", err)
		}
	}
	return nil
}

// parseNodes reads N or MIN:MAX.
func parseNodes(text string) (low, high int, err error) {
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

// parseOrder reads ip, name, or file:PATH with a node name on each line.
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

// parseSpans reads ranks such as 0,8-15.
func parseSpans(text string) ([]launcher.Span, error) {
	if text == "" {
		return nil, nil
	}
	var spans []launcher.Span
	for part := range strings.SplitSeq(text, ",") {
		first, second, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && ranged {
			to, err = strconv.Atoi(second)
		}
		if err != nil || from < 0 || to < from {
			return nil, fmt.Errorf("%q: ranks such as 0,8-15", part)
		}
		spans = append(spans, launcher.Span{From: from, To: to})
	}
	return spans, nil
}
