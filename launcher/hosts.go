package launcher

import (
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// Host is a machine that the job may use.
type Host struct {
	// Name is a name, an address or an alias of ssh_config(5), with or without USER@ before it.
	Name string `json:"Name"`
	// Slots is how many ranks the host may have, and how many of its GPUs it offers. 0 is as many
	// ranks as the job wants, and all GPUs.
	Slots int `json:"Slots"`
}

// takeHosts completes a job by its hosts, unless the user has said otherwise.
func (j *Job) takeHosts() error {
	if j.Resources.Simulate || j.Cluster.Coordinator != "" || j.Network.Rendezvous != "" {
		return usage.Errorf("hosts are machines on which this process starts the nodes; leave out simulate, coordinator and rendezvous")
	}
	for _, h := range j.Network.Hosts {
		if err := hostfile.Check(h.Name); err != nil {
			return usage.Errorf("%v", err)
		}
	}
	user, err := j.userEnv()
	if err != nil {
		return err
	}
	j.Env = nil
	for _, v := range user { // NAME alone has this process's value
		j.Env = append(j.Env, v.Name+"="+v.Value)
	}
	r := &j.Resources
	if r.MinNodes == 0 && r.MaxNodes == 0 {
		r.MinNodes = max(1, len(j.Network.Hosts)-j.Resources.Spares)
		r.MaxNodes = r.MinNodes
	}
	if r.MaxNodes > len(j.Network.Hosts)-j.Resources.Spares {
		return usage.Errorf("it wants %d nodes and %d spares, but has only %d hosts", r.MaxNodes, j.Resources.Spares, len(j.Network.Hosts))
	}
	return j.takeSlots()
}

// takeSlots makes the slots of the hosts the ranks of each node, or checks that the wanted ranks
// fit. It cannot check a list of ranks: the order of the nodes is not known yet.
func (j *Job) takeSlots() error {
	r, first := &j.Resources, j.Network.Hosts[0]
	differ := false
	for _, h := range j.Network.Hosts {
		differ = differ || h.Slots != first.Slots
		switch {
		case len(r.PerNode) == 0 && (h.Slots == 0) != (first.Slots == 0):
			return usage.Errorf("%s has %d slots and %s has %d: give slots to all hosts or to none, or --gpus-per-node auto for a rank on each GPU",
				first.Name, first.Slots, h.Name, h.Slots)
		case len(r.PerNode) == 1 && h.Slots > 0 && r.PerNode[0] > h.Slots:
			return usage.Errorf("%s has %d slots, and each node %d ranks: give it more slots, or the nodes fewer ranks",
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

// ParseHosts reads a list such as n1,n2:4, where the number after the colon is the slots, or a file
// of mpirun or DeepSpeed: n1 slots=4. It returns none if both are empty, and at most 2^20. A name
// may be a Slurm host list, such as gpu[01-08]. An IPv6 address stands in brackets.
//
// In a file, a host on several lines without slots has one slot for each (orte_hosts(7)). Any other
// host may occur only once, in a list too. Errors are ErrUsage, have one line, and name the flag,
// or the file with the line.
func ParseHosts(list, file string) (hosts []Host, err error) {
	var found []hostfile.Host
	switch {
	case list != "" && file != "":
		return nil, usage.Errorf("give --hosts or --hostfile, not both")
	case file != "":
		found, err = hostfile.Read(file)
	default:
		found, err = hostfile.Parse(list)
	}
	if err != nil {
		return nil, err
	}
	for _, h := range found {
		hosts = append(hosts, Host(h))
	}
	return hosts, nil
}
