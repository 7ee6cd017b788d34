package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// torchFlags are torchrun's flags as they were given.
type torchFlags struct {
	nnodes, nproc                    string
	backend, endpoint, id, rdzvConf  string
	masterAddr, localAddr            string
	masterPort, nodeRank             int
	standalone, virtual              bool
	module, noPython, runPath        bool
	role, logDir                     string
	redirects, tee, filter, template string
	maxRestarts                      int
	shutdown                         int

	// What has no effect here is read all the same, so that a bad value is found.
	start, events, signals, specs, numa, shell string
	filters                                    [2]string
	useEnv                                     bool
	monitor                                    float64
}

// torchrunName begins the messages about the command line, as argparse has it.
const torchrunName = "torchrun"

// newTorchrun returns torchrun, which reads its command line itself, by torchrun's rules.
func newTorchrun(s *cli.Console) *cobra.Command {
	c := cli.NewVerb("torchrun [FLAGS] SCRIPT [ARG...]", "run a job from torchrun's command line, as a link named torchrun does", nil)
	c.DisableFlagParsing = true
	c.Long = fmt.Sprintf("Its flags are torchrun's:\n\n%s", newTorchFlags(new(torchFlags)).FlagUsagesWrapped(110))
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return torchWords(newTorchFlags(new(torchFlags))), cobra.ShellCompDirectiveDefault
	}
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) { return torchrun(s, args) })
	return c
}

// torchrun runs the job that torchrun's command line describes (torch 2.15, torch/distributed/run.py). docs/torchrun.md says what
// each flag means here.
func torchrun(io *cli.Console, args []string) (int, error) {
	var t torchFlags
	f := newTorchFlags(&t)
	err := parseTorch(f, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(io.Stdout, torchIntro, f.FlagUsagesWrapped(110))
		return 0, nil
	case err == nil && t.shell != "":
		return torchCompletion(io, f, t.shell)
	case err != nil:
		return refuse(io, err)
	}
	j, warnings, err := t.job(f)
	if err != nil {
		return refuse(io, err)
	}
	io.JSON = j.Output.JSON
	if !j.Output.Quiet {
		for _, w := range warnings {
			io.Message(torchrunName+": warning: "+w, jsonout.Words{Warning: w})
		}
	}
	return launch(io, j, t.stops()...)
}

// refuse ends a command line that cannot be run as argparse does.
func refuse(io *cli.Console, err error) (int, error) {
	io.Print(torchrunName + ": " + strings.TrimPrefix(err.Error(), launcher.ErrUsage.Error()+": ") + "\n")
	return cli.ExitUsage, nil
}

const torchIntro = `usage: torchrun [FLAGS] SCRIPT [ARG...]

golaunch, with torchrun's command line. Each flag may be written with _ for - and shortened while no other begins alike; PET_ and
its name in capitals is its variable. The exit code is that of the rank that failed first, where torchrun's is always 1; restarts
are counted over all nodes, and rank 0 alone has the standard input. Flags that torchrun does not have are given by their
variables, such as GOLAUNCH_LEASE; see golaunch --help-all.

%s`

func newTorchFlags(t *torchFlags) *pflag.FlagSet {
	f := pflag.NewFlagSet(torchrunName, pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.SortFlags = false
	f.Usage = func() {}
	f.StringVar(&t.nnodes, "nnodes", "1:1", "nodes: `N` or MIN:MAX")
	f.StringVar(&t.nproc, "nproc-per-node", "1", "ranks on each node: `N`, gpu, cpu or auto")
	f.StringVar(&t.backend, "rdzv-backend", "static", "how nodes meet: static or c10d")
	f.StringVar(&t.endpoint, "rdzv-endpoint", "", "where nodes meet, `HOST:PORT`; HOST runs golaunch's coordinator")
	f.StringVar(&t.id, "rdzv-id", "none", "`name` of the job, TORCHELASTIC_RUN_ID")
	f.StringVar(&t.rdzvConf, "rdzv-conf", "", "`KEY=VALUE,...`: join_timeout, last_call_timeout, timeout, keep_alive_interval, keep_alive_max_attempt")
	f.BoolVar(&t.standalone, "standalone", false, "one node, a free port and a made-up rdzv-id, whatever else was given")
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
	f.StringVar(&t.specs, "logs-specs", "", "default; other `entry points` are Python's, and refused")
	f.StringVar(&t.numa, "numa-binding", "", "`what` CPUs a rank is bound to: node, socket, exclusive or core-complex")
	f.StringVar(&t.signals, "signals-to-handle", torchSignals, "`signals` that stop the job, and what else stops golaunch")
	f.IntVar(&t.shutdown, "shutdown-timeout", 30, "`seconds` that a rank may take to end after SIGTERM")
	f.BoolVar(&t.virtual, "virtual-local-rank", false, "a rank sees its own GPU alone, as cuda:0, and has LOCAL_RANK=0")
	f.BoolVar(&t.useEnv, "use-env", false, "no effect: LOCAL_RANK is always set")
	f.StringVar(&t.shell, "print-completion", "", "print a completion script for bash, zsh or tcsh")
	f.SetNormalizeFunc(abbreviated)
	return f
}

// Defaults of torchrun's that have to be known by value.
const (
	defaultMasterPort = 29500
	torchSignals      = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
)

// abbreviated takes _ for - and the beginning of one flag's name for the whole, as argparse does.
func abbreviated(f *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if all := beginning(f, name); len(all) == 1 {
		name = all[0]
	}
	return pflag.NormalizedName(name)
}

// beginning lists the flags whose names begin alike; one that has just this name is all of them.
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

// parseTorch reads flags, then PET_ variables for what they left open.
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

// runpy is --run-path: the script in an interpreter that runs runpy.run_path, with the arguments that a script has. What it raises is
// recorded, as torchrun records it for a function.
const runpy = `import json, os, runpy, sys, time, traceback
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as e:
    if name := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        with open(name, "w") as f:
            json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}}, f)
    raise
`

// command is what each rank runs.
func (t *torchFlags) command(args []string) ([]string, error) {
	python := []string{interpreter(os.Args[0]), "-u"}
	switch {
	case len(args) == 0:
		return nil, errors.New("the following arguments are required: training_script, training_script_args")
	case t.runPath:
		python = append(python, "-c", runpy)
	case t.noPython && t.module:
		return nil, errors.New("don't use both the --no-python flag and the --module flag at the same time")
	case t.noPython:
		python, args = args[:1:1], args[1:] // the program is taken as it is
	case t.module:
		python = append(python, "-m")
	}
	return append(python, args...), nil
}

// interpreter is the Python that runs scripts: PYTHON_EXEC, or the one beside the link named torchrun that golaunch was called by, or beside one
// that this leads to, in an environment that is not activated, or the first on the PATH.
func interpreter(self string) string {
	if python := os.Getenv("PYTHON_EXEC"); python != "" {
		return python
	}
	names := torchLinks(self)
	for _, link := range names {
		if isEnvironment(filepath.Dir(filepath.Dir(link))) {
			if python := beside(link); python != "" {
				return python
			}
		}
	}
	for _, link := range names {
		if python := beside(link); python != "" && !activated() {
			return python
		}
	}
	if _, err := exec.LookPath("python"); err == nil {
		return "python"
	}
	return "python3"
}

// maxLinks is how many links the kernel follows (path_resolution(7)).
const maxLinks = 40

// torchLinks are the names of torchrun by which golaunch was found: the one that was called, and those that it is a link to.
func torchLinks(self string) (names []string) {
	link, err := exec.LookPath(self)
	for range maxLinks {
		if err != nil || filepath.Base(link) != torchrunName {
			break
		}
		names = append(names, link)
		var target string
		if target, err = os.Readlink(link); err == nil && !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		link = target
	}
	return names
}

// beside is the Python in the directory of a link; empty if there is none.
func beside(link string) string {
	for _, name := range []string{"python3", "python"} {
		if python, err := filepath.Abs(filepath.Join(filepath.Dir(link), name)); err == nil {
			if _, err := exec.LookPath(python); err == nil {
				return python
			}
		}
	}
	return ""
}

// isEnvironment says that a directory is a virtual environment (PEP 405) or conda's.
func isEnvironment(dir string) bool {
	return slices.ContainsFunc([]string{"pyvenv.cfg", "conda-meta"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// activated says that the user has chosen an environment.
func activated() bool { return os.Getenv("VIRTUAL_ENV")+os.Getenv("CONDA_PREFIX") != "" }

// torchCompletion prints a script that completes torchrun's flags.
func torchCompletion(io *cli.Console, f *pflag.FlagSet, shell string) (int, error) {
	script := map[string]string{
		"bash": "complete -o default -W %q torchrun\n",
		"zsh":  "#compdef torchrun\n_arguments '*: :(%s)'\n",
		"tcsh": "complete torchrun 'p/*/(%s)/'\n",
	}[shell]
	if script == "" {
		return refuse(io, fmt.Errorf("--print-completion %s: bash, zsh or tcsh", shell))
	}
	fmt.Fprintf(io.Stdout, script, strings.Join(torchWords(f), " "))
	return 0, nil
}

// torchWords are torchrun's flags.
func torchWords(f *pflag.FlagSet) (words []string) {
	f.VisitAll(func(flag *pflag.Flag) { words = append(words, "--"+flag.Name) })
	return words
}
