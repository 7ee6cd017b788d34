package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

type coordinatorOptions struct {
	launcher.Coordinator
	json, quiet, giveBack bool
}

func newCoordinator(s *cli.Console) *cobra.Command {
	var o coordinatorOptions
	c := cli.NewVerb("coordinator [--listen HOST:PORT]", "run the coordinator of a cluster that jobs share", cli.Args(0, 0))
	f := c.Flags()
	f.StringVar(&o.Listen, "listen", "", fmt.Sprintf("`HOST:PORT` for agents and clients (this machine's address on the default route, port %d or the first of --port-range)",
		launcher.DefaultPort))
	f.StringSliceVar(&o.Peers, "peers", nil, "`HOST:PORT,...` of all 3, 5 or 7 coordinators of the cluster, the same list for each; a minority may be lost")
	f.StringVar(&o.PortRange, "port-range", "", cli.PortRangeUsage)
	f.StringVar(&o.Store, "state-dir", "", "`directory` for the state that a restarted coordinator reads (~/.golaunch/HOST:PORT)")
	f.StringVar(&o.Capacity, "capacity", "", "`file` with the kinds of nodes to ask for when jobs wait, and to give back when they are idle")
	f.DurationVar(&o.Lease, "lease", launcher.DefaultLease, "how long a node may be silent; then its ranks are dead and it counts as lost")
	f.StringVar(&o.TokenFile, "token-file", "", cli.TokenUsage)
	f.BoolVar(&o.giveBack, "give-back", false, "start no coordinator: delete all nodes that the one with this --state-dir has asked for, and wait until they are gone")
	f.BoolVar(&o.json, "json", false, "print the address as JSON")
	f.BoolVar(&o.quiet, "quiet", false, "print warnings only")
	c.RunE = s.Run(func(*cobra.Command, []string) (int, error) {
		if o.giveBack {
			o.Say, o.Warn = s.Say, s.Warn
			return 0, o.GiveBack(context.Background())
		}
		return 0, o.run(s)
	})
	return c
}

// run serves a cluster until a signal stops it.
func (o *coordinatorOptions) run(io *cli.Console) error {
	heard, err := hearSignals()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go untilStopped(heard, cancel)
	o.Announced, o.Warn = true, io.Warn
	if !o.quiet {
		o.Say = io.Say
	}
	o.Ready = func(at netip.AddrPort) {
		// This tells systemd that a service of type notify has started (sd_notify(3)). Without
		// systemd it does nothing.
		_, told := daemon.SdNotify(true, daemon.SdNotifyReady)
		if err := errors.Join(o.announce(io, at), told); err != nil {
			io.Warn(err)
		}
	}
	return o.Serve(ctx)
}

// headShown is the line that names the address of the coordinator; docs/json.md is its contract.
type headShown struct {
	jsonout.Header
	Address string   `json:"address"`
	Peers   []string `json:"peers"`
	PID     int      `json:"pid"`
}

// announce prints how agents reach the coordinator.
func (o *coordinatorOptions) announce(io *cli.Console, at netip.AddrPort) error {
	if o.json {
		line, err := jsonout.Line(&headShown{Address: at.String(), Peers: o.Peers, PID: os.Getpid()})
		if err == nil {
			_, err = io.Stdout.Write(line)
		}
		return err
	}
	if o.quiet {
		return nil
	}
	io.Print(fmt.Sprintf("golaunch: the coordinator listens at %v; on each node, with the same ~/.golaunch/token, run:\n"+
		"  golaunch agent --coordinator %s\n", at, cmp.Or(strings.Join(o.Peers, ","), at.String())))
	return nil
}

// untilStopped cancels at the first signal that means stop.
func untilStopped(heard <-chan os.Signal, cancel context.CancelFunc) {
	for s := range heard {
		if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 { // these two are for ranks
			cancel()
			return
		}
	}
}
