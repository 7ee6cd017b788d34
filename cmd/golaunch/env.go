package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/jobflags"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/nccl"
)

func newEnv(s *cli.Console) *cobra.Command {
	var o jobflags.Flags
	c := cli.NewVerb("env [flags]", "show the environment of a rank on this machine, and its network", jobflags.AfterDashes)
	o.Declare(c.Flags())
	c.RunE = s.Run(func(c *cobra.Command, args []string) (int, error) { return 0, runEnv(&o, s, c.Flags(), args) })
	return c
}

// runEnv shows the environment of a rank on this machine, with reasons.
func runEnv(o *jobflags.Flags, io *cli.Console, f *pflag.FlagSet, command []string) error {
	if err := o.Complete(f, command); err != nil {
		return err
	}
	if len(o.Job.Command) == 0 {
		o.Job.Command = []string{"COMMAND"}
	}
	s, err := o.Job.Survey(context.Background())
	if err != nil {
		return err
	}
	shown := show(s)
	if o.JSON {
		return jsonout.Print(io.Stdout, &shown)
	}
	return shown.print(io.Stdout, s)
}

// env --json prints these; docs/json.md is their contract.
type (
	surroundings struct {
		jsonout.Header
		Node    string   `json:"node"`
		Address string   `json:"address"`
		Network network  `json:"network"`
		NICs    []nic    `json:"nics"`
		GPUs    []gpuNet `json:"gpus"`
		environment
	}
	network struct {
		Fabric    nccl.Fabric       `json:"fabric"`
		Reason    string            `json:"reason"`
		Devices   []string          `json:"devices"`
		Interface string            `json:"interface,omitempty"`
		Versions  map[string]string `json:"versions"`
	}
	nic struct {
		Name   string      `json:"name"`
		Fabric nccl.Fabric `json:"fabric"`
		PCI    string      `json:"pci"`
		NUMA   *int        `json:"numa,omitempty"`
		Speed  int         `json:"bits_per_second,omitempty"`
		Device string      `json:"device,omitempty"`
		Why    string      `json:"unusable,omitempty"`
	}
	gpuNet struct {
		Index    int      `json:"index"`
		PCI      string   `json:"pci"`
		Nearest  []string `json:"nearest"`
		Distance string   `json:"distance"`
	}
)

// gigabit is 1 Gbit/s in bits per second.
const gigabit = 1_000_000_000

func show(s launcher.Surroundings) surroundings {
	v := s.Network.Versions
	out := surroundings{
		Node: s.Node.Name, Address: s.Node.Addr.String(), environment: newEnvironment(s.Env),
		Network: network{s.Network.Fabric, s.Why, s.Network.Devices, s.Network.Interface, map[string]string{
			"kernel": v.Kernel, "machine": v.Machine, "efa": v.Driver, "efa_installer": v.Installer, "libfabric": v.Libfabric,
			"aws_ofi_nccl": v.Plugin,
		}},
	}
	maps.DeleteFunc(out.Network.Versions, func(_, version string) bool { return version == "" })
	for _, n := range s.NICs {
		shown := nic{Name: n.Name, Fabric: n.Fabric, PCI: n.PCI(), Speed: n.Gbps * gigabit, Device: n.Device, Why: n.Why}
		if n.NUMA >= 0 {
			shown.NUMA = &n.NUMA
		}
		out.NICs = append(out.NICs, shown)
	}
	for _, g := range s.Node.GPUs {
		if g.PCI == "" {
			continue
		}
		near, distance := nccl.Nearest(nccl.GPUPlace(os.DirFS("/sys"), g.PCI), s.NICs, s.Network.Fabric)
		out.GPUs = append(out.GPUs, gpuNet{g.Index, g.PCI, near, distance.String()})
	}
	return out
}

func (v surroundings) print(w io.Writer, s launcher.Surroundings) error {
	versions := s.Network.Versions
	fmt.Fprintf(w, "%s\n", v.Network.Reason)
	fmt.Fprintf(w, "Linux %s, machine %s, efa %s, libfabric %s, aws-ofi-nccl %s\n\n", known(versions.Kernel), known(versions.Machine),
		known(versions.Driver), known(versions.Libfabric), known(versions.Plugin))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NIC\tFABRIC\tPCI\tNUMA\tGBIT/S\tDEVICE\tSTATE")
	for _, n := range s.NICs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, n.Fabric, n.PCI(), n.NUMA, n.Gbps, cmp.Or(n.Device, "-"), cmp.Or(n.Why, "usable"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, g := range v.GPUs {
		fmt.Fprintf(w, "gpu %d (%s): nearest %s (%s)\n", g.Index, g.PCI, cmp.Or(strings.Join(g.Nearest, ", "), "none"), g.Distance)
	}
	fmt.Fprintln(w)
	return v.environment.print(w)
}

func known(version string) string { return cmp.Or(version, "unknown") }
