// Package machine describes this machine as a node of a job or of a cluster: its name, its address
// and its GPUs.
package machine

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
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// Wanted says how the user and the scheduler want this machine to appear as a node.
type Wanted struct {
	// Name is the node's name; the host name when empty. The user chooses the node's address by
	// Address, or by Interface, a network interface that has the address. Only one of the two may
	// be set. If neither is, the user chose no address.
	Name, Address, Interface string
	// OwnGPUs are the only GPUs that the node offers, as indexes or UUIDs separated by commas; all
	// visible GPUs when empty. GivenGPUs are the GPUs that a scheduler gave.
	OwnGPUs   string
	GivenGPUs []string
	Labels    map[string]string
}

// Bare returns the node without GPUs.
func (w Wanted) Bare() (placement.Node, error) {
	node, err := w.located()
	if err == nil && !wire.ValidName(node.Name) {
		err = usage.Errorf("node name %q: letters, digits, '.', '_' and '-', %d at most; give one with --name", node.Name, wire.MaxName)
	}
	return node, err
}

// Reachable returns the address at which other nodes reach this one.
func (w Wanted) Reachable(ctx context.Context) (netip.Addr, error) {
	node, err := w.located()
	if err != nil {
		return node.Addr, err
	}
	return address.Reachable(ctx, node)
}

// located returns the node with its name and its addresses. It does not check the name.
func (w Wanted) located() (node placement.Node, err error) {
	node = placement.Node{Name: w.Name, CPUs: runtime.NumCPU(), Labels: w.Labels}
	if node.Name == "" {
		if node.Name, err = address.MachineName(); err != nil {
			return node, err
		}
	}
	if node.Addr, err = w.addr(node.Name); err != nil {
		return node, err
	}
	node.Others, err = address.Global()
	return node, err
}

// WithGPUs returns the node with its GPUs, and all devices that the driver shows. A machine without
// GPUs is an error.
func (w Wanted) WithGPUs(ctx context.Context) (node placement.Node, devices []gpu.Device, err error) {
	if node, err = w.Bare(); err != nil {
		return node, nil, err
	}
	gpus, devices, why, err := w.gpus(ctx)
	switch {
	case errors.Is(err, usage.Kind()):
		return node, nil, err
	case err != nil:
		return node, nil, driverError(node.Name, err)
	case len(gpus) == 0:
		return node, nil, fmt.Errorf("%s has no GPU: %s; for CPU ranks use --procs-per-node, for declared GPUs --simulate", node.Name, why)
	}
	node.GPUs = gpus
	err = LabelNetwork(&node)
	return node, devices, err
}

// GPUs returns the GPUs of the node, if any, and all devices that the driver shows.
func (w Wanted) GPUs(ctx context.Context, node string) ([]placement.GPU, []gpu.Device, error) {
	gpus, devices, _, err := w.gpus(ctx)
	if err != nil {
		err = driverError(node, err)
	}
	return gpus, devices, err
}

// driverError adds to the error the code by which golaunch doctor explains it.
func driverError(node string, err error) error {
	f := health.DriverError(err)
	f.Node = node
	return errors.New(f.String())
}

// addr returns the address that the user chose for this node. It is the zero Addr if the user chose
// none.
func (w Wanted) addr(name string) (addr netip.Addr, err error) {
	switch {
	case w.Address != "" && w.Interface != "":
		return addr, usage.Errorf("give an address or an interface, not both")
	case w.Interface != "":
		return address.OfInterface(w.Interface)
	case w.Address == "":
		return addr, nil
	}
	return address.Parse(w.Address, name)
}

// gpus returns the GPUs that this node offers, and all devices that the driver shows. If the node
// would offer none of these devices, gpus returns instead the GPUs that a scheduler gave. If there
// are no GPUs, why says why.
func (w Wanted) gpus(ctx context.Context) (gpus []placement.GPU, devices []gpu.Device, why string, err error) {
	devices, why, err = gpu.Survey(ctx)
	ours, hidden := gpu.Visible(devices)
	if w.OwnGPUs != "" && err == nil {
		if ours, err = gpu.Choose(ours, w.OwnGPUs); err != nil {
			err = usage.Errorf("%v", err)
		}
	}
	if err != nil || len(ours) > 0 {
		return gpu.Placement(ours), devices, cmp.Or(why, hidden), err
	}
	for i, name := range w.GivenGPUs {
		g := placement.GPU{Index: i, UUID: name}
		if index, err := strconv.Atoi(name); err == nil {
			g = placement.GPU{Index: index}
		}
		gpus = append(gpus, g)
	}
	return gpus, devices, cmp.Or(why, hidden), nil
}
