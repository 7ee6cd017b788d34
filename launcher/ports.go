package launcher

import (
	"cmp"
	"net"

	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

func portRange(text string) (ports.Range, error) {
	r, err := ports.Parse(text)
	if err != nil {
		return r, usage.Errorf("%v", err)
	}
	return r, nil
}

// ports is PortRange, checked.
func (n Network) ports() ports.Range {
	r, _ := portRange(n.PortRange) // complete has refused another
	return r
}

// coordinatorPort is where a coordinator listens if its address names no port.
func coordinatorPort(r ports.Range) int { return cmp.Or(r.First, DefaultPort) }

// listeners are what the node with the most of them has on ports of the range at the same time.
func (j Job) listeners() (on []string) {
	_, _, portless := net.SplitHostPort(j.Network.Rendezvous)
	switch p := j.place; {
	case j.Cluster.Coordinator != "" || j.Resources.Simulate:
	case len(j.Network.Hosts) > 0, j.Network.Rendezvous != "" && portless != nil:
		on = append(on, "the coordinator")
	case p != nil && p.Nodes > 1 && p.Port == 0 && j.Network.Rendezvous == "":
		on = append(on, "the coordinator", "the door where nodes ask for it")
	}
	if j.Ranks.MasterPort == 0 {
		on = append(on, "the store at MASTER_PORT")
	}
	if j.Ranks.Endpoint {
		on = append(on, "the endpoint of a controller")
	}
	return on
}
