// Command scale measures the cost of a cluster for its coordinator, and the times of its
// operations, at sizes that no test has. It runs a real coordinator, and agents that have a
// connection each, over loopback and mutual TLS, but no ranks. The agents obey each order at once.
//
//	go run -C tools/scale . -agents 1000,2500,5000,12500
//
// The agents are in two processes beside this one, which is their client. All share this machine's
// cores: a third of each result is the cost of the agents, or more if there are handshakes. With
// -cores, the coordinators have this number of cores to themselves. An agent's connection needs a
// file in two processes, so the limit of open files bounds the agents, not golaunch. With -logical
// there are no connections: the agents are in the coordinator's process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if words := os.Getenv(swarmVariable); words != "" {
		exit(runSwarm(words))
	}
	if words := os.Getenv(headVariable); words != "" {
		exit(runHead(words))
	}
	sizes := flag.String("agents", "1000,2500,5000,12500", "sizes of the cluster")
	ranks := flag.Int("ranks", 8, "ranks of each agent")
	failures := flag.Int("failures", 3, "failures of all ranks at once that the job survives")
	quiet := flag.Duration("quiet", 20*time.Second, "time in which nothing happens, for what that costs")
	profile := flag.String("profile", "", "directory for profiles of each coordinator, which then runs in this program")
	loud := flag.Bool("loud", false, "no two ranks of a node fail alike: the coordinator gets the evidence of each")
	until := flag.String("until", "", "last phase: register, rest, start, fail, status, logs, restart, stop, silence or takeover")
	from := flag.String("from", "", "first phase, register or takeover: these need none before them")
	logical := flag.Bool("logical", false, "agents without connections: what the coordinator alone costs, at sizes for which one machine has no files")
	golaunch := flag.String("golaunch", "", "the golaunch to measure (default: the one of this repository)")
	cores := flag.Int("cores", 0, "give the coordinators the first so many cores, and the agents the others")
	asJSON := flag.Bool("json", false, "print one JSON object for each size")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := plan{
		ranks: *ranks, failures: *failures, quiet: *quiet, profile: *profile, from: *from, until: *until, loud: *loud, alone: *logical,
		golaunch: *golaunch, cores: *cores,
	}
	err := measure(ctx, *sizes, p, *asJSON)
	if ctx.Err() != nil { // err says no more than that its processes were ended
		err = context.Cause(ctx)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// plan lists the measurements at each size.
type plan struct {
	golaunch        string
	ranks, failures int
	quiet           time.Duration
	profile         string
	from, until     string
	loud            bool
	// alone is true if there are no connections.
	alone bool
	// cores is the number of cores that only the coordinators use; 0 if all processes share all
	// cores.
	cores int
}

func measure(ctx context.Context, sizes string, p plan, asJSON bool) error {
	dir, err := os.MkdirTemp("", "golaunch-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if !p.alone && p.golaunch == "" {
		if err := p.build(ctx, dir); err != nil {
			return err
		}
	}
	var table []*result
	var failed error
	for size := range strings.SplitSeq(sizes, ",") {
		if ctx.Err() != nil {
			break
		}
		agents, err := strconv.Atoi(size)
		if err != nil || agents < 4 {
			return fmt.Errorf("-agents %s: numbers of 4 and more, with commas between them", sizes)
		}
		var r *result
		if p.alone {
			r, err = p.logical(ctx, agents)
		} else {
			r, err = p.at(ctx, filepath.Join(dir, size), agents)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("with %d agents: %w", agents, err))
		}
		if r == nil {
			continue
		}
		if asJSON {
			text, err := json.Marshal(r)
			if err != nil {
				return err
			}
			fmt.Println(string(text))
		}
		table = append(table, r)
	}
	if !asJSON && len(table) > 0 {
		failed = errors.Join(failed, print(os.Stdout, table))
	}
	return failed
}

// build builds golaunch for the coordinators.
func (p *plan) build(ctx context.Context, dir string) error {
	p.golaunch = filepath.Join(dir, "golaunch")
	build := exec.CommandContext(ctx, "go", "build", "-o", p.golaunch, "./cmd/golaunch")
	build.Dir = root(ctx)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("cannot build golaunch; run this in its repository: %w", err)
	}
	return nil
}

// root returns the directory of golaunch's module, which contains this module. If the directory is
// unknown, it returns an empty text, which means the working directory.
func root(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/golaunch/golaunch").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
