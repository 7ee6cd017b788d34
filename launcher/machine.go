package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/placement"
)

// offer is what this machine offers to the job, once it was looked at. Where a scheduler or an agent has started this process, that ends what
// it leaves behind, and a cgroup is no matter.
func (h *here) offer(ctx context.Context, alone bool) (placement.Node, error) {
	node, devices, err := h.job.look(ctx)
	if err == nil {
		system := health.Here(h.job.Output.LogDir)
		if alone {
			system.Holds = proc.Holds
		}
		h.job.Health.examine(ctx, &node, h.job.Resources.GPU, devices, system)
	}
	return node, err
}

// thisNode is what this machine offers: its GPUs if the job wants any, and the name and address that the job gives it.
func (j Job) thisNode(ctx context.Context) (placement.Node, error) {
	node, _, err := j.look(ctx)
	return node, err
}

// look is thisNode, with all GPUs that the driver shows if the job wants any.
func (j Job) look(ctx context.Context) (node placement.Node, devices []gpu.Device, err error) {
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

// driverError has the code that golaunch doctor has for it.
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
		if node.Name, err = machineName(); err != nil {
			return node, err
		}
	}
	if !wire.ValidName(node.Name) {
		return node, usage("node name %q: letters, digits, '.', '_' and '-', 253 at most; give one with --name", node.Name)
	}
	node.Labels = j.labels()
	if node.Addr, err = j.given(node.Name); err != nil {
		return node, err
	}
	node.Others, err = others()
	return node, err
}

// labels are what placement goes by; nil for nothing.
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
		if machine := machineID(); machine != "" {
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

// machineID is equal for processes that share this one's addresses, and for no others: it names
// this boot of the machine, and the network namespace. It is empty where the system does not say.
func machineID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, noNetwork := os.Readlink("/proc/self/ns/net")
	if err != nil || noNetwork != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "." + strings.Trim(network, "net:[]")
}

// given is the address that the user wants for this node; none when he leaves it open.
func (j Job) given(name string) (addr netip.Addr, err error) {
	switch {
	case j.Network.Address != "" && j.Network.Interface != "":
		return addr, usage("give an address or an interface, not both")
	case j.Network.Interface != "":
		return interfaceAddr(j.Network.Interface)
	case j.Network.Address == "":
		return addr, nil
	}
	if addr, err = netip.ParseAddr(j.Network.Address); err != nil {
		return addr, usage("address %q: an IPv4 or IPv6 address", j.Network.Address)
	}
	_, ours, err := owns([]netip.Addr{addr})
	if err == nil && !ours {
		err = fmt.Errorf("address %s is not one of %s's; ip addr lists them", j.Network.Address, name)
	}
	return addr, err
}

// gpus are those found here, of all devices, or those that a scheduler gave where there is no driver to ask; why says why there are
// none.
func (j Job) gpus(ctx context.Context) (gpus []placement.GPU, devices []gpu.Device, why string, err error) {
	devices, why, err = gpu.Survey(ctx)
	ours, hidden := gpu.Visible(devices)
	if j.Resources.OwnGPUs != "" && err == nil {
		if ours, err = gpu.Choose(ours, j.Resources.OwnGPUs); err != nil {
			err = usage("%v", err)
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

// declared is the i-th of the nodes that stand for machines, with as many GPUs as the job wants on it.
func (j Job) declared(i int) placement.Node {
	node := placement.Node{Name: "node" + strconv.Itoa(i), Addr: loopback(i), CPUs: runtime.NumCPU()}
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

// simulatedGPUs is what a declared node has when the job wants all of them.
const simulatedGPUs = 8

// loopback is 127.0.0.1 for node 0, 127.0.0.2 for node 1, and so on; all of 127.0.0.0/8 is this machine.
func loopback(i int) netip.Addr {
	n := i + 1
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}

// owns finds the address of a host that belongs to this machine, if one does.
func owns(addrs []netip.Addr) (netip.Addr, bool, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("cannot list this machine's addresses: %w", err)
	}
	for _, addr := range addrs {
		if addr.IsLoopback() {
			return addr, true, nil
		}
		for _, own := range interfaces {
			if prefix, err := netip.ParsePrefix(own.String()); err == nil && prefix.Addr().WithZone("") == addr.WithZone("") {
				return addr, true, nil
			}
		}
	}
	return netip.Addr{}, false, nil
}

// bridge returns the name of this machine's network bridge, such as docker0, that has the address.
// It is empty if none has it, or if it is the default route's.
func bridge(addr netip.Addr) string {
	interfaces, err := net.Interfaces()
	if err != nil || addr.IsLoopback() || addr == defaultAddr() {
		return ""
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		mine := func(a net.Addr) bool {
			prefix, err := netip.ParsePrefix(a.String())
			return err == nil && prefix.Addr().Unmap().WithZone("") == addr.WithZone("")
		}
		if err != nil || !slices.ContainsFunc(addrs, mine) {
			continue
		}
		info, err := unix.IoctlGetEthtoolDrvinfo(fd, i.Name)
		if err == nil && unix.ByteSliceToString(info.Driver[:]) == "bridge" {
			return i.Name
		}
	}
	return ""
}

// maxOthers bounds the addresses that a node tells of.
const maxOthers = 16

// others are the addresses from which processes of this machine may reach other nodes.
func others() ([]netip.Addr, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot list this machine's addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, own := range interfaces {
		prefix, err := netip.ParsePrefix(own.String())
		if addr := prefix.Addr().Unmap(); err == nil && addr.IsGlobalUnicast() && len(addrs) < maxOthers {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// endpoint is where a coordinator listens: a host's addresses, and the port.
type endpoint struct {
	host  string
	addrs []netip.Addr
	port  int
}

// meeting finds where the nodes of a job meet.
func (n Network) meeting(ctx context.Context) (endpoint, error) {
	return resolve(ctx, n.Rendezvous, coordinatorPort(n.ports()))
}

// resolve finds the addresses of HOST:PORT, or of HOST alone with a usual port.
func resolve(ctx context.Context, text string, usual int) (endpoint, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		host, portText = text, strconv.Itoa(usual)
	}
	port, err := strconv.Atoi(portText)
	addr, noAddr := netip.ParseAddr(host)
	if err != nil || port < 1 || port > 65535 || noAddr != nil && !wire.ValidName(host) || addr.IsUnspecified() {
		return endpoint{}, usage("rendezvous %q: HOST:PORT that every node can reach, such as n1:%d or [fd00::1]:%d",
			text, DefaultPort, DefaultPort)
	}
	e := endpoint{host, []netip.Addr{addr}, port}
	if noAddr == nil {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	if e.addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return e, fmt.Errorf("rendezvous host %s: %w; use an address, or a name that every node can resolve", host, err)
	}
	for i := range e.addrs {
		e.addrs[i] = e.addrs[i].Unmap()
	}
	return e, nil
}

// reachable leaves only addresses that other nodes can reach. Debian's /etc/hosts gives a machine's
// own name the address 127.0.1.1: then it takes the address at which the others reach this machine,
// as the job says of its node, and tells say.
func (e endpoint) reachable(ctx context.Context, j Job, say func(string)) (endpoint, error) {
	if _, err := netip.ParseAddr(e.host); err == nil || e.host == "localhost" {
		return e, nil // as it was asked for
	}
	far := slices.DeleteFunc(slices.Clone(e.addrs), netip.Addr.IsLoopback)
	if len(far) > 0 {
		e.addrs = far
		return e, nil
	}
	name, _ := os.Hostname()
	if first, _, _ := strings.Cut(e.host, "."); name == "" || first != strings.Split(name, ".")[0] {
		return e, fmt.Errorf("rendezvous host %s is %v on this machine (see /etc/hosts), which no other node can reach; use its address",
			e.host, e.addrs[0])
	}
	own, err := j.headAddr(ctx)
	if err != nil {
		return e, fmt.Errorf("rendezvous host %s is %v on this machine (see /etc/hosts), and %w", e.host, e.addrs[0], err)
	}
	say(fmt.Sprintf("%s is %v on this machine (see /etc/hosts); the others find it at %v, or else --address or --interface says where", e.host, e.addrs[0], own))
	e.host, e.addrs = own.String(), []netip.Addr{own}
	return e, nil
}
