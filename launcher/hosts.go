package launcher

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/placement"
)

// Host is a machine that the job may use.
type Host struct {
	// Name is what ssh knows it by: a name, an address, an alias of ssh_config(5), each with USER@ before it or not.
	Name string
	// Slots is how many ranks it may have, and how many GPUs it offers, its first; 0 as many as the job wants, and all.
	Slots int
}

// settle completes a job by its hosts, where the user has not said otherwise.
func (j *Job) settle() error {
	if j.Resources.Simulate || j.Cluster.Coordinator != "" || j.Network.Rendezvous != "" {
		return usage("hosts are machines on which this process starts the nodes; leave out simulate, coordinator and rendezvous")
	}
	for _, h := range j.Network.Hosts {
		if err := checkHost(h.Name); err != nil {
			return usage("%v", err)
		}
	}
	user, err := j.user()
	if err != nil {
		return err
	}
	j.Env = nil
	for _, v := range user { // NAME alone means the value here
		j.Env = append(j.Env, v.Name+"="+v.Value)
	}
	r := &j.Resources
	if r.MinNodes == 0 && r.MaxNodes == 0 {
		r.MinNodes = max(1, len(j.Network.Hosts)-j.Resources.Spares)
		r.MaxNodes = r.MinNodes
	}
	if r.MaxNodes > len(j.Network.Hosts)-j.Resources.Spares {
		return usage("it wants %d nodes and %d spares, and has %d hosts", r.MaxNodes, j.Resources.Spares, len(j.Network.Hosts))
	}
	return j.settleRanks()
}

// settleRanks makes the slots of hosts the ranks of each node, or holds them against those that are wanted. Who gets which share of a
// list is not known before the nodes are in order.
func (j *Job) settleRanks() error {
	r, first := &j.Resources, j.Network.Hosts[0]
	differ := false
	for _, h := range j.Network.Hosts {
		differ = differ || h.Slots != first.Slots
		switch {
		case len(r.PerNode) == 0 && (h.Slots == 0) != (first.Slots == 0):
			return usage("%s has %d slots and %s has %d: give slots to all hosts or to none, or --gpus-per-node auto for a rank on each GPU",
				first.Name, first.Slots, h.Name, h.Slots)
		case len(r.PerNode) == 1 && h.Slots > 0 && r.PerNode[0] > h.Slots:
			return usage("%s has %d slots, and each node %d ranks: give it more slots, or the nodes fewer ranks",
				h.Name, h.Slots, r.PerNode[0])
		}
	}
	if len(r.PerNode) == 0 && first.Slots > 0 {
		if r.PerNode = []int{first.Slots}; differ {
			r.PerNode = []int{placement.AllGPUs}
		}
	}
	return nil
}

// node is the host's name as a node; empty if it can have none of its own choice, as an IPv6 address.
func (h Host) node() string {
	name := h.Name[strings.LastIndexByte(h.Name, '@')+1:]
	if !wire.ValidName(name) {
		return ""
	}
	return name
}

// checkHost refuses what ssh, or a shell that it starts for a ProxyCommand, could take for something else than a host.
func checkHost(name string) error {
	at := strings.LastIndexByte(name, '@') + 1
	user, host := name[:at], name[at:]
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(`._-+@\`, c))
	}
	if user == "@" || strings.HasPrefix(user, "-") || strings.ContainsFunc(user, bad) {
		return fmt.Errorf("%.60q: a user before @ is of letters, digits and ._-+@\\, and does not begin with '-'", name)
	}
	addr, err := netip.ParseAddr(host)
	if zone := addr.Zone(); !wire.ValidName(host) && (err != nil || zone != "" && !wire.ValidName(zone)) {
		return fmt.Errorf("%.60q is no host: a name of letters, digits, '.', '_' and '-', or an address", name)
	}
	return nil
}
