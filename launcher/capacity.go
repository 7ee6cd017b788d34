package launcher

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/rendezvous"
)

// capacity are the nodes that the coordinator may ask for, whose agents come to an address.
func (c Coordinator) capacity(kinds []capacityfile.Kind, at, secret string) ([]rendezvous.Capacity, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the program that new nodes run: %w", err)
	}
	token := c.TokenFile
	if token != "" { // the agents have other working directories
		if token, err = filepath.Abs(token); err != nil {
			return nil, err
		}
	}
	var all []rendezvous.Capacity
	for _, k := range kinds {
		agent := provider.Agent{Golaunch: self, Coordinator: at, TokenFile: token, Flags: k.Agent}
		for _, name := range slices.Sorted(maps.Keys(k.Node.Labels)) {
			agent.Labels = append(agent.Labels, name+"="+k.Node.Labels[name])
		}
		capacity := rendezvous.Capacity{Kind: k.Kind, Limit: k.Limit}
		switch k.Provider {
		case "exec":
			capacity.Provider = provider.Exec{Kind: k.Name, Command: k.Words, Agent: agent}
		case "kubernetes":
			agent.TokenFile = "" // pods have a Secret
			capacity.Provider, err = provider.NewKubernetes(k.Name, k.Words, agent)
		case "slurm":
			capacity.Provider = provider.Slurm{Options: k.Words, Agent: agent}
		case "ssh":
			agent.TokenFile = ""
			capacity.Provider, err = provider.NewSSH(k.Words, agent, secret)
		}
		if err != nil {
			return nil, usage.Errorf("%s: %s: %w", c.Capacity, k.Name, err)
		}
		all = append(all, capacity)
	}
	return all, nil
}
