package torchrun

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/process/filetimer"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/placement"
)

// translation turns torchrun's flags into golaunch's. A flag set here overrides golaunch's own
// variable.
type translation struct {
	*torchFlags
	given    *pflag.FlagSet
	o        jobflags.Flags
	ours     *pflag.FlagSet
	min, max int
	// minHealthy is true if ft_launcher's job goes on while at least MIN of its nodes do.
	minHealthy bool
	warnings   []string
}

// job returns the job that torchrun's flags describe, and warnings about flags without effect.
func (t *torchFlags) job(given *pflag.FlagSet, self string) (launcher.Job, []string, error) {
	x := translation{torchFlags: t, given: given}
	x.ours = pflag.NewFlagSet(Name, pflag.ContinueOnError)
	x.o.Declare(x.ours)
	x.o.Backoff = "0s" // torchrun does not wait
	for _, step := range []func() error{x.ranks, x.meet, x.conf, x.stop, x.output, x.timer, x.refused, x.resilience} {
		if err := step(); err != nil {
			return launcher.Job{}, nil, err
		}
	}
	x.ignored()
	err := errors.Join(cli.SetFromEnv(x.ours), x.o.Complete(x.ours, nil))
	if err != nil {
		return launcher.Job{}, nil, err
	}
	if r := &x.o.Job.Resources; x.max > 1 && r.PerNode[0] > 0 { // each node has its own number of ranks
		r.Slots, r.PerNode = r.PerNode[0], []int{placement.AllGPUs}
	}
	x.o.Job.Output.JSON = x.o.JSON
	x.o.Job.Command, err = t.command(given.Args(), self)
	return x.o.Job, x.warnings, err
}

// set sets one of golaunch's flags; its variable then has no effect.
func (x *translation) set(flag, value string) error { return x.ours.Set(flag, value) }

func (x *translation) warn(format string, args ...any) {
	x.warnings = append(x.warnings, fmt.Sprintf(format, args...))
}

// numaBindings are torchrun's names (torch/numa/binding.py) for the values of --bind.
var numaBindings = map[string]string{"": "none", "node": "numa", "socket": "socket", "exclusive": "core", "core-complex": "l3"}

// ranks sets the number of ranks, the number of nodes, and the CPUs.
func (x *translation) ranks() (err error) {
	if x.min, x.max, err = jobflags.ParseNodes(x.nnodes); err != nil {
		return fmt.Errorf("--nnodes: %w", err)
	}
	x.o.Job.Ranks.Role = x.role
	if x.virtual {
		err = x.set("gpu-visibility", "own")
	}
	return errors.Join(err, x.set("bind", numaBindings[x.numa]), x.set("nodes", x.nnodes), x.set("nproc-per-node", x.nproc), x.set("gpus-per-node", ""),
		x.set("procs-per-node", ""), x.set("coordinator", ""), x.set("max-restarts", strconv.Itoa(max(0, x.maxRestarts))))
}

// timer sets torchrun's watchdog timer for its workers, with a made-up name if none is given. If
// the timer is off, the caller's variable is passed on.
func (x *translation) timer() error {
	x.o.Job.Env = append(x.o.Job.Env, "TORCHELASTIC_SIGNALS_TO_HANDLE="+x.signals)
	name, given := os.LookupEnv(filetimer.Variable)
	switch {
	case os.Getenv(filetimer.Enable) == "1":
		x.o.Job.Ranks.TimerFile = cmp.Or(name, filepath.Join(os.TempDir(), "watchdog_timer_"+rand.Text()))
	case given:
		x.o.Job.Env = append(x.o.Job.Env, filetimer.Variable+"="+name)
	}
	return nil
}

// meet sets where nodes meet, and the port of rank 0. A job of one node opens only the port of rank
// 0.
func (x *translation) meet() error {
	static := x.backend == "static"
	id, port, endpoint := x.id, "0", ""
	switch {
	case x.standalone && x.min > 1:
		return fmt.Errorf("--standalone is one node, --nnodes %s wants more", x.nnodes)
	case x.standalone, static && x.endpoint == "" && !x.given.Changed("master-port") && x.max == 1:
		id = "" // golaunch chooses an ID
	case !static && x.backend != "c10d":
		return fmt.Errorf("--rdzv-backend %s: static or c10d; golaunch's coordinator meets the nodes for both", x.backend)
	default:
		var host string
		var err error
		if host, port, err = x.where(); err != nil {
			return err
		}
		if x.max > 1 {
			endpoint, port = net.JoinHostPort(host, port), "0"
			if err := x.node(); err != nil {
				return err
			}
		} else if !static {
			port = "0"
		}
	}
	return errors.Join(x.set("job-id", id), x.set("rendezvous", endpoint), x.set("master-port", port), x.address())
}

// where returns the endpoint. With c10d, an endpoint without a port gets c10d's default port. With
// static, MASTER_ADDR and MASTER_PORT are the endpoint if none is given.
func (x *translation) where() (host, port string, err error) {
	text := x.endpoint
	if text == "" && x.backend == "static" {
		text = net.JoinHostPort(strings.Trim(x.masterAddr, "[]"), strconv.Itoa(x.masterPort))
	}
	if host, port, err = net.SplitHostPort(text); err != nil {
		host, port = strings.Trim(text, "[]"), strconv.Itoa(launcher.DefaultPort)
		if x.backend == "static" {
			return "", "", fmt.Errorf("--rdzv-endpoint %s: the port is missing: HOST:PORT", text)
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", "", fmt.Errorf("endpoint %s: port %q: 0 to 65535", text, port)
	}
	if host == "" {
		host = "localhost"
	}
	return host, port, nil
}

// node sets the number of this node. golaunch sorts nodes by the numbers in their names, so
// static's --node-rank becomes the beginning of the name.
func (x *translation) node() error {
	if x.backend == "c10d" {
		if x.nodeRank != 0 {
			x.warn("--node-rank is for --rdzv-backend static alone; the nodes are numbered by address")
		}
		return nil
	}
	name, err := os.Hostname()
	switch {
	case err != nil:
		return fmt.Errorf("this node has no name: %w", err)
	case x.nodeRank < 0 || x.nodeRank >= x.max:
		return fmt.Errorf("--node-rank %d: 0 to %d for --nnodes %s", x.nodeRank, x.max-1, x.nnodes)
	}
	return errors.Join(x.set("name", fmt.Sprintf("%d-%s", x.nodeRank, name)), x.set("order", "name"))
}

// address sets the address from --local-addr, which may be a name.
func (x *translation) address() error {
	if x.localAddr == "" {
		return nil
	}
	if _, err := netip.ParseAddr(x.localAddr); err == nil {
		return x.set("address", x.localAddr)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", x.localAddr)
	if err != nil {
		return fmt.Errorf("--local-addr %s: %w", x.localAddr, err)
	}
	return x.set("address", addrs[0].Unmap().String())
}
