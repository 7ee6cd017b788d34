package torchrun

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
)

// torchFlags are torchrun's flags as they were given.
type torchFlags struct {
	nodeFlags
	workerFlags
	outputFlags
	otherFlags
	// ft are ft_launcher's flags; nil for torchrun.
	ft *ftFlags
}

// program is the name of the program that has these flags.
func (t *torchFlags) program() string {
	if t.ft != nil {
		return FTName
	}
	return Name
}

// nodeFlags say which nodes run the job, and where the nodes meet.
type nodeFlags struct {
	nnodes                          string
	backend, endpoint, id, rdzvConf string
	masterAddr, localAddr           string
	masterPort, nodeRank            int
	standalone                      bool
}

// workerFlags describe the program of each rank, and how ranks restart and stop.
type workerFlags struct {
	nproc, role, numa, signals         string
	module, noPython, runPath, virtual bool
	maxRestarts, shutdown              int
}

// outputFlags say where the ranks' output goes.
type outputFlags struct {
	logDir, redirects, tee, filter, template string
	filters                                  [2]string
}

// otherFlags have no effect on the job, but golaunch refuses bad values.
type otherFlags struct {
	start, events, specs, shell string
	useEnv                      bool
	monitor                     float64
}

func newTorchFlags(t *torchFlags) *pflag.FlagSet {
	f := pflag.NewFlagSet(t.program(), pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.SortFlags = false
	f.Usage = func() {}
	f.StringVar(&t.nnodes, "nnodes", "1:1", "nodes: `N` or MIN:MAX")
	f.StringVar(&t.nproc, "nproc-per-node", "1", "ranks on each node: `N`, gpu, cpu or auto")
	f.StringVar(&t.backend, "rdzv-backend", "static", "how nodes meet: static or c10d")
	f.StringVar(&t.endpoint, "rdzv-endpoint", "", "where nodes meet, `HOST:PORT`; HOST runs golaunch's coordinator")
	f.StringVar(&t.id, "rdzv-id", "none", "`name` of the job, TORCHELASTIC_RUN_ID")
	f.StringVar(&t.rdzvConf, "rdzv-conf", "", "`KEY=VALUE,...`: join_timeout, last_call_timeout, timeout, keep_alive_interval, keep_alive_max_attempt")
	f.BoolVar(&t.standalone, "standalone", false, "one node, a free port and a made-up rdzv-id, whatever the other flags say")
	f.IntVar(&t.maxRestarts, "max-restarts", 0, "restarts of the whole job, over all nodes")
	f.Float64Var(&t.monitor, "monitor-interval", 0.1, "no effect: nothing is polled")
	f.StringVar(&t.start, "start-method", "spawn", "no effect: spawn, fork or forkserver")
	f.StringVar(&t.events, "event-log-handler", "null", "not honoured: events.jsonl in the log directory has the events")
	f.StringVar(&t.role, "role", "default", "ROLE_NAME of the ranks")
	f.BoolVarP(&t.module, "module", "m", false, "SCRIPT is a module, as for python -m")
	f.BoolVar(&t.noPython, "no-python", false, "SCRIPT is a program")
	f.BoolVar(&t.runPath, "run-path", false, "run SCRIPT with runpy.run_path")
	f.StringVar(&t.logDir, "log-dir", "", "`directory` for <rdzv-id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}")
	f.StringVarP(&t.redirects, "redirects", "r", "0", "streams to files alone: 0 none, 1 stdout, 2 stderr, 3 both, or by local rank: `0:3,12:1`")
	f.StringVarP(&t.tee, "tee", "t", "0", "streams to files and, prefixed, to the console; as for --redirects")
	f.StringVar(&t.template, "log-line-prefix-template", "", "`prefix` of --tee: ${role_name}, ${local_rank}, ${rank}, ${hostname}")
	f.StringVar(&t.filter, "local-ranks-filter", "", "show only these local ranks: `0,1,2`")
	f.StringVar(&t.filters[0], "duplicate-stdout-filters", "", "lines of --tee with one of these `texts,...` go to attempt_<n>/filtered_stdout.log too")
	f.StringVar(&t.filters[1], "duplicate-stderr-filters", "", "the same for filtered_stderr.log")
	f.IntVar(&t.nodeRank, "node-rank", 0, "this node's rank, for static")
	f.StringVar(&t.masterAddr, "master-addr", "127.0.0.1", "node rank 0's `host`, for static")
	f.IntVar(&t.masterPort, "master-port", defaultMasterPort, "its `port`, for static")
	f.StringVar(&t.localAddr, "local-addr", "", "this node's `address`")
	f.StringVar(&t.specs, "logs-specs", "", "default; other `entry points` need Python, and are refused")
	f.StringVar(&t.numa, "numa-binding", "", "`CPUs` that a rank is bound to: node, socket, exclusive or core-complex")
	f.StringVar(&t.signals, "signals-to-handle", torchSignals, "`signals` that stop the job, besides those that always do")
	f.IntVar(&t.shutdown, "shutdown-timeout", 30, "`seconds` that a rank may take to end after SIGTERM")
	f.BoolVar(&t.virtual, "virtual-local-rank", false, "a rank sees its own GPU alone, as cuda:0, and has LOCAL_RANK=0")
	f.BoolVar(&t.useEnv, "use-env", false, "no effect: LOCAL_RANK is always set")
	f.StringVar(&t.shell, "print-completion", "", "print a completion script for bash, zsh or tcsh")
	if t.ft == nil {
		f.SetNormalizeFunc(abbreviated)
		return f
	}
	declareFT(f, t.ft)
	f.SetNormalizeFunc(abbreviatedFT)
	return f
}

// Defaults of torchrun that golaunch needs by value.
const (
	defaultMasterPort = 29500
	torchSignals      = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
)

// abbreviated maps _ to - and an unambiguous beginning to the flag, as argparse does.
func abbreviated(f *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if all := beginning(f, name); len(all) == 1 {
		name = all[0]
	}
	return pflag.NormalizedName(name)
}

// beginning lists the flags that begin with name; only the flag itself if name is a full name.
func beginning(f *pflag.FlagSet, name string) (all []string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, name) {
			all = append(all, flag.Name)
		}
	})
	if slices.Contains(all, name) {
		return []string{name}
	}
	return all
}

// parseTorch parses flags, then sets flags that were not given from PET_ variables.
func parseTorch(f *pflag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if all := beginning(f, unknown.GetSpecifiedName()); len(all) > 1 {
				return fmt.Errorf("--%s could be --%s", unknown.GetSpecifiedName(), strings.Join(all, ", --"))
			}
		}
		return cli.PlainError(err)
	}
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		name := "PET_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || flag.Changed || flag.Name == "logs-specs" || flag.Name == "numa-binding" || flag.Name == "print-completion" {
			return
		}
		if flag.Value.Type() == "bool" { // torchrun reads it as a number
			n, err := strconv.Atoi(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: 0 or 1", name, value))
				return
			}
			value = strconv.FormatBool(n != 0)
		}
		if err := f.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, cli.PlainError(err)))
		}
	})
	return errors.Join(errs...)
}

// torchWords lists torchrun's flags.
func torchWords(f *pflag.FlagSet) (words []string) {
	f.VisitAll(func(flag *pflag.Flag) { words = append(words, "--"+flag.Name) })
	return words
}
