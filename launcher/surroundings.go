package launcher

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// takePlace fills in the fields of a job that the user has not set, from the facts of a scheduler
// or another launcher.
func (j *Job) takePlace() (err error) {
	if j.Resources.Order.By == orderSlurm {
		defer func() {
			if err == nil {
				err = j.slurmOrder()
			}
		}()
	}
	if len(j.Network.Hosts) > 0 {
		return j.takeHosts()
	}
	if j.Network.Scheduler == noScheduler || j.Resources.Simulate || j.Cluster.Coordinator != "" {
		return nil
	}
	j.place, err = schedenv.Find(schedenv.Here())
	if err != nil && j.Network.Rendezvous == "" && !j.oneNode() {
		return usage.Errorf("%v", err)
	}
	if j.place == nil {
		return nil
	}
	lone := j.isLone()
	if lone {
		p := j.place
		p.Nodes, p.Node, p.Names, p.Head, p.Ask, p.Several = 1, 0, []string{p.Name}, "", nil, nil
	}
	if err := j.name(j.place); err != nil {
		return err
	}
	if err := j.ranks(j.place); err != nil {
		return err
	}
	if j.Ranks.MasterPort == j.place.Port {
		j.Ranks.MasterPort = 0 // the nodes meet at PET_MASTER_PORT, so the ranks need another port
	}
	if j.Network.Rendezvous != "" {
		return nil // the user has said how the nodes meet
	}
	if j.ID == "" {
		j.ID = scheduledID(j.place, lone)
	}
	return j.nodes(j.place)
}

// oneNode reports whether this is a command line of torchrun that asks for one node. Each process
// that runs such a command line has a job of its own.
func (j Job) oneNode() bool {
	return j.Output.Torch != nil && j.Network.Rendezvous == "" && j.Resources.MaxNodes == 1 && j.Resources.Spares == 0
}

// isLone reports whether this process runs a job of its own although a scheduler gave more nodes,
// or started more processes.
func (j Job) isLone() bool {
	p, r := j.place, j.Resources
	one := r.MinNodes == 1 && r.MaxNodes == 1 && r.Spares == 0 && j.Network.Rendezvous == ""
	return p.Several != nil && one || p.Nodes > 1 && j.oneNode()
}

// name sets this node's name to the scheduler's name for it. If several processes share the node,
// it adds this process's number.
func (j *Job) name(p *schedenv.Place) (err error) {
	if j.Network.Interface == "" && j.Network.Address == "" {
		j.Network.Interface = p.Interface
	}
	if j.Network.Name != "" {
		return nil
	}
	if j.Network.Name = p.Name; p.Several == nil {
		return nil
	}
	if p.Name == "" {
		if p.Name, err = address.MachineName(); err != nil {
			return err
		}
	}
	j.Network.Name = p.Name + "-" + strconv.Itoa(p.Task)
	return nil
}

// ranks sets PerNode to the number of ranks that a scheduler wants on a node.
func (j *Job) ranks(p *schedenv.Place) error {
	if len(j.Resources.PerNode) > 0 {
		return nil
	}
	if p.PerNode != "gpu" && p.By == "Slurm" && !p.Each && p.Name == "" {
		switch gpus, err := slurm.GivesGPUs(context.Background()); {
		case err != nil:
			return err
		case gpus:
			p.PerNode = "gpu"
		}
	}
	if p.PerNode == "" {
		return nil
	}
	if err := j.perNode(p.PerNode); err != nil {
		return usage.Errorf("%s: %v", p.By, err)
	}
	return nil
}

// nodes sets the number of nodes to that of the scheduler, and decides how the nodes meet.
func (j *Job) nodes(p *schedenv.Place) error {
	if p.Several != nil {
		return usage.Errorf("%v", p.Several)
	}
	if !p.Each && p.By != "Slurm" && !p.Alone() {
		for _, name := range p.Names {
			j.Network.Hosts = append(j.Network.Hosts, Host{Name: name})
		}
		return j.takeHosts()
	}
	if err := p.AskHead(); err != nil {
		return err
	}
	r := &j.Resources
	if r.MinNodes == 0 && r.MaxNodes == 0 && p.Nodes > 0 {
		r.MinNodes = max(1, p.Nodes-j.Resources.Spares)
		r.MaxNodes = r.MinNodes
	}
	switch {
	case p.Nodes > 0 && r.MinNodes > p.Nodes:
		return usage.Errorf("it wants %d nodes, and %s gives it %d", r.MinNodes, p.By, p.Nodes)
	case p.Each && p.Nodes == 0 && r.MinNodes == 0:
		return usage.Errorf("%s does not tell how many nodes the job has: give --nodes", p.By)
	case p.Each && p.Head == "" && p.Ask == nil && !j.eachAlone():
		return usage.Errorf("%s does not tell where node 0 is: give the pods the subdomain of a headless service, or --rendezvous HOST:PORT", p.By)
	}
	return nil
}

// takeHosts fills in the fields of a job that the user has not set, from the job's hosts.
func (j *Job) takeHosts() error {
	if j.Resources.Simulate || j.Cluster.Coordinator != "" || j.Network.Rendezvous != "" {
		return usage.Errorf("hosts are machines on which this process starts the nodes; leave out simulate, coordinator and rendezvous")
	}
	for _, h := range j.Network.Hosts {
		if err := hostfile.Check(h.Name); err != nil {
			return usage.Errorf("%v", err)
		}
	}
	if err := j.resolveEnv(); err != nil {
		return err
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

// takeSlots gives each node as many ranks as its host has slots, or checks that the wanted ranks
// fit. It cannot check a list of several numbers, because the order of the nodes is not known yet.
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

// eachAlone reports whether each process that runs this command has a job of its own. That is so if
// the job wants one node, and neither a scheduler nor a flag says that there are more.
func (j Job) eachAlone() bool {
	p, r := j.place, j.Resources
	return p.Each && (p.Nodes == 1 || p.Nodes == 0 && r.MinNodes == 1 && r.MaxNodes == 1 && j.Resources.Spares == 0)
}

// scheduledID returns the scheduler's ID of the job, or "" if golaunch cannot use that ID. A suffix
// distinguishes jobs with the same ID: an allocation may run many jobs, a scheduler may run one job
// several times, and several processes may each run a job of their own.
func scheduledID(p *schedenv.Place, lone bool) string {
	id := p.Job
	switch {
	case id == "":
		return ""
	case !p.Each || lone:
		id += "-" + strings.ToLower(rand.Text()[:5])
	case p.Restarts > 0:
		id += "-r" + strconv.Itoa(p.Restarts)
	}
	if !validID(id) {
		return ""
	}
	return id
}

// orderSlurm is the value of Order.By that means the order of Slurm's own list of nodes.
const orderSlurm = "slurm"

func (j *Job) slurmOrder() error {
	if j.place == nil || j.place.By != "Slurm" {
		return usage.Errorf("order slurm: this process is not in a Slurm job")
	}
	j.Resources.Order = placement.Order{By: "list", List: j.place.Names}
	return nil
}

// perNode reads a scheduler's word for the number of ranks. It does not count this machine's GPUs
// for "gpu", because the GPUs may be on other machines.
func (j *Job) perNode(text string) (err error) {
	r := &j.Resources
	if text == "gpu" {
		r.PerNode, r.GPU = []int{placement.AllGPUs}, true
		return nil
	}
	r.PerNode, r.GPU, err = gpu.TorchRanks(context.Background(), text)
	return err
}
