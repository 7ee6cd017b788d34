// Package schedenv reads, from the environment alone, what a scheduler or another launcher has
// given this process: which nodes there are, which of them this node is, where node 0 can be
// reached, and which GPUs this process may use. It sends nothing and changes nothing.
package schedenv

// Place has what a scheduler or launcher has given to this process. A zero field is unknown.
type Place struct {
	// By names who started this process, for messages: "Slurm", "Kubernetes (Indexed Job)", "Open
	// MPI".
	By string
	// Job is the same on all nodes, and differs from all other jobs at this time. It consists of
	// letters, digits, '.', '_' and '-'.
	Job string
	// Restarts counts how often the scheduler has started this job again.
	Restarts int
	// Nodes is the number of nodes, and Node this node's position among them, from 0.
	Nodes, Node int
	// Names are the nodes' names in the order of their positions, and Name is this node's name. An
	// empty Name stands for the host name.
	Names []string
	Name  string
	// Head is the host (a name or an address) where the other nodes reach node 0, and Port is the
	// port for that. If Port is 0, the nodes must agree on a port.
	Head string
	Port int
	// Ask is a command that prints Head, for a launcher that names the host only when asked.
	Ask []string
	// Interface is the network interface for the traffic between the nodes.
	Interface string
	// Groups is the number of components of a heterogeneous job; 0 for other jobs.
	Groups int
	// GPUs are the indexes, or UUIDs, of the GPUs that this process may use; nil if unknown.
	GPUs []string
	// PerNode is how many ranks a node is to have, in torchrun's words: a number, gpu, cpu or auto.
	PerNode string
	// Each says that this command was started on every node. Otherwise it runs once, and must start
	// the other nodes itself.
	Each bool
	// Several says why the processes of this command cannot be the nodes of a job: several
	// processes run on one node. A job that takes no nodes from this place ignores Several. Task is
	// this process's number among all processes of the command; 0 if each is alone on its node.
	Several error
	Task    int
	// Topology is this node's place in the network: the names of the switches from the top level
	// down, then of the node, separated by dots.
	Topology string
	// Sources are the variables from which the place was read, to explain it to a user.
	Sources []string
}

// Alone reports whether the job has only this node, so that no other process need be started.
func (p *Place) Alone() bool {
	return len(p.Names) == 1 && p.Names[0] == p.Name
}

// Slurm reports whether Slurm started this process.
func (p *Place) Slurm() bool { return p != nil && p.By == "Slurm" }

// RanksHear reports whether the ranks get the signals of this process too: Slurm signals all
// processes of a step.
func (p *Place) RanksHear() bool { return p.Slurm() && p.Each }
