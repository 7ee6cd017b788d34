package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// peers has the programs with which golaunch can be compared. Empty fields mean that a program is
// missing.
type peers struct {
	mpirun bool
	slurm  bool
	// python is a Python with torch, and torchrun is the torchrun of that Python.
	python, torchrun string
	// ray is the directory of Ray's commands and of its Python; rayTrain says that it can train
	// with the same torch.
	ray      string
	rayTrain bool
}

// launcher starts n ranks of a command on one machine.
type launcher struct {
	name     string
	restarts bool
	argv     func(n int, command ...string) []string
	// exec runs argv to its end.
	exec func(ctx context.Context, limit time.Duration, argv []string) (time.Duration, error)
}

// find looks for all peers. For each missing peer it names a way to add it.
func (r *run) find(ctx context.Context, python, ray string) {
	own := said1(ctx, "git", "describe", "--always")
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", "*.go", "go.mod", "go.sum").Run() != nil {
		own += " with changes"
	}
	r.rec.Peers = append(r.rec.Peers, record.Peer{Name: record.Golaunch, Version: own})
	have := func(name, version, hint string) bool {
		if version == "" {
			r.skip(name, "", hint)
			return false
		}
		fmt.Printf("%s: %s\n", name, version)
		r.rec.Peers = append(r.rec.Peers, record.Peer{Name: name, Version: version})
		return true
	}
	mpirun := strings.NewReplacer("mpirun (", "", ")", "").Replace(said1(ctx, "mpirun", "--version"))
	r.peers.mpirun = have(record.Mpirun, mpirun, "it is not installed (Debian: openmpi-bin)")
	slurm := strings.Replace(said1(ctx, "slurmctld", "-V"), "slurm-wlm", "Slurm", 1)
	if os.Getuid() != 0 {
		slurm = ""
	}
	r.peers.slurm = have(record.Srun, slurm, "it needs root, for network namespaces, and Slurm (Debian: slurmctld slurmd slurm-client munge)")
	torch := said1(ctx, python, "-c", "import torch; print(torch.__version__)")
	if have(record.Torchrun, named("torch", torch), python+" has no torch: name a Python that has it (PYTHON=, -python)") {
		r.peers.python = said1(ctx, python, "-c", "import sys; print(sys.executable)")
		r.peers.torchrun = filepath.Join(filepath.Dir(r.peers.python), "torchrun")
	}
	version := ""
	if ray != "" {
		version = said1(ctx, filepath.Join(ray, "python"), "-c", "import ray; print(ray.__version__)")
	}
	if have(record.Ray, named("Ray", version),
		`name the bin directory of a virtual environment that has it, by pip install "ray[default,train]" (RAY=, -ray)`) {
		r.peers.ray = ray
		other := said1(ctx, filepath.Join(ray, "python"), "-c", "import ray.train.torch, torch; print(torch.__version__)")
		if r.peers.rayTrain = other != "" && other == torch; !r.peers.rayTrain {
			r.skip(record.Ray, "ddp", fmt.Sprintf("its Python has torch %s, not %s with Ray Train as the others", cmp.Or(other, "none"), torch))
		}
	}
}

// named returns the version of a program; empty if there is none.
func named(name, version string) string {
	if version == "" {
		return ""
	}
	return name + " " + version
}

// said1 returns the first line that a command prints; empty if it fails.
func said1(ctx context.Context, argv ...string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// launchers returns the launchers that exist on this machine. Slurm's launcher runs on a running
// cluster, if there is one.
func (r *run) launchers(slurm *shell) []launcher {
	all := []launcher{{record.Golaunch, true, func(n int, command ...string) []string {
		return append([]string{r.golaunch, "--quiet", "--backoff", "0s", "--procs-per-node", strconv.Itoa(n), "--"}, command...)
	}, r.exec}}
	if r.peers.mpirun {
		all = append(all, launcher{record.Mpirun, false, func(n int, command ...string) []string {
			return append([]string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(n)}, command...)
		}, r.exec})
	}
	if slurm != nil {
		all = append(all, launcher{record.Srun, false, func(n int, command ...string) []string {
			return append([]string{"srun", "-n" + strconv.Itoa(n)}, command...)
		}, func(ctx context.Context, limit time.Duration, argv []string) (time.Duration, error) {
			return slurm.run(ctx, limit, strings.Join(argv, " "))
		}})
	}
	if r.peers.torchrun != "" {
		all = append(all, launcher{record.Torchrun, true, func(n int, command ...string) []string {
			return append([]string{r.peers.torchrun, "--standalone", "--max-restarts", "1", "--no-python", "--nproc-per-node", strconv.Itoa(n)}, command...)
		}, r.exec})
	}
	return all
}

// free returns a TCP port of loopback that is not in use.
func free() (port string, err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, err
}
