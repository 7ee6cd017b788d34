package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/preflight"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// examinedNode is this machine as a node, after preflight. alone says that nothing else cleans up
// after this process, so that it needs a cgroup.
func (l *localRun) examinedNode(ctx context.Context, alone bool) (placement.Node, error) {
	node, devices, err := l.job.examine(ctx)
	if err == nil {
		system := health.Here(l.job.Output.LogDir)
		if alone {
			system.Holds = proc.Holds
		}
		preflight.Examine(ctx, l.job.Health.Preflight, &node, l.job.Resources.GPU, devices, system)
	}
	return node, err
}

// thisNode is this machine as a node, with its GPUs if the job wants any.
func (j Job) thisNode(ctx context.Context) (placement.Node, error) {
	node, _, err := j.examine(ctx)
	return node, err
}

// examine is thisNode, with all devices that the driver shows.
func (j Job) examine(ctx context.Context) (node placement.Node, devices []gpu.Device, err error) {
	if node, err = j.named(); err != nil || !j.Resources.GPU {
		return node, nil, err
	}
	gpus, devices, why, err := j.gpus(ctx)
	switch {
	case errors.Is(err, ErrUsage):
		return node, nil, err
	case err != nil:
		return node, nil, driverError(node.Name, err)
	case len(gpus) == 0:
		return node, nil, fmt.Errorf("%s has no GPU: %s; for CPU ranks use --procs-per-node, for declared GPUs --simulate", node.Name, why)
	}
	node.GPUs = gpus
	err = tellNetwork(&node)
	return node, devices, err
}

// driverError has golaunch doctor's code for the error.
func driverError(node string, err error) error {
	f := health.DriverError(err)
	f.Node = node
	return errors.New(f.String())
}

// named is this machine without its GPUs.
func (j Job) named() (placement.Node, error) {
	node := placement.Node{Name: j.Network.Name, CPUs: runtime.NumCPU()}
	var err error
	if node.Name == "" {
		if node.Name, err = address.MachineName(); err != nil {
			return node, err
		}
	}
	if !wire.ValidName(node.Name) {
		return node, usage.Errorf("node name %q: letters, digits, '.', '_' and '-', 253 at most; give one with --name", node.Name)
	}
	node.Labels = j.labels()
	if node.Addr, err = j.givenAddr(node.Name); err != nil {
		return node, err
	}
	node.Others, err = address.Global()
	return node, err
}

// labels are what placement reads of this node; nil for none.
func (j Job) labels() map[string]string {
	labels := map[string]string{}
	if j.place != nil && j.place.Topology != "" {
		labels[placement.TopologyLabel] = j.place.Topology
	}
	if j.Resources.Slots > 0 {
		labels[placement.SlotsLabel] = strconv.Itoa(j.Resources.Slots)
	}
	if j.Output.Torch != nil && j.Resources.MaxNodes > 1 { // under torchrun each node may have another
		labels[placement.RoleLabel] = j.Ranks.Role
	}
	if r := j.Resources; r.MaxNodes+r.Spares > 1 {
		if machine := address.MachineID(); machine != "" {
			labels[placement.MachineLabel] = machine
		}
		switch {
		case j.Network.Name != "":
		case j.Output.Torch != nil:
			labels[wire.RenamesLabel] = wire.RenamesAlways
		default: // the same command twice on a machine is a mistake
			labels[wire.RenamesLabel] = wire.RenamesElsewhere
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// givenAddr is the address that the user chose for this node; invalid if none.
func (j Job) givenAddr(name string) (addr netip.Addr, err error) {
	switch {
	case j.Network.Address != "" && j.Network.Interface != "":
		return addr, usage.Errorf("give an address or an interface, not both")
	case j.Network.Interface != "":
		return address.OfInterface(j.Network.Interface)
	case j.Network.Address == "":
		return addr, nil
	}
	return address.Parse(j.Network.Address, name)
}

// gpus are the visible ones of all devices here, or those that a scheduler gave if there is no
// driver; why says why there are none.
func (j Job) gpus(ctx context.Context) (gpus []placement.GPU, devices []gpu.Device, why string, err error) {
	devices, why, err = gpu.Survey(ctx)
	ours, hidden := gpu.Visible(devices)
	if j.Resources.OwnGPUs != "" && err == nil {
		if ours, err = gpu.Choose(ours, j.Resources.OwnGPUs); err != nil {
			err = usage.Errorf("%v", err)
		}
	}
	if err != nil || len(ours) > 0 || j.place == nil {
		return gpu.Placement(ours), devices, cmp.Or(why, hidden), err
	}
	for i, name := range j.place.GPUs {
		g := placement.GPU{Index: i, UUID: name}
		if index, err := strconv.Atoi(name); err == nil {
			g = placement.GPU{Index: index}
		}
		gpus = append(gpus, g)
	}
	return gpus, devices, cmp.Or(why, hidden), nil
}

// declared is the i-th simulated node, with as many GPUs as the job wants there.
func (j Job) declared(i int) placement.Node {
	node := placement.Node{Name: "node" + strconv.Itoa(i), Addr: address.Loopback(i), CPUs: runtime.NumCPU()}
	if !j.Resources.GPU {
		return node
	}
	gpus := j.Resources.PerNode[min(i, len(j.Resources.PerNode)-1)]
	if gpus == placement.AllGPUs {
		gpus = simulatedGPUs
	}
	for n := range gpus {
		node.GPUs = append(node.GPUs, placement.GPU{Index: n})
	}
	return node
}

// simulatedGPUs is how many GPUs a declared node has if the job wants all of them.
const simulatedGPUs = 8
