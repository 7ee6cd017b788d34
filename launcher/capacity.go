package launcher

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/rendezvous"
)

// capacity are the nodes that the coordinator may ask for, whose agents come to an address.
func (c Coordinator) capacity(kinds []capacityfile.Kind, at string) ([]rendezvous.Capacity, error) {
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
		agent := provider.Agent{Golaunch: self, Coordinator: at, TokenFile: token}
		for _, name := range slices.Sorted(maps.Keys(k.Node.Labels)) {
			agent.Labels = append(agent.Labels, name+"="+k.Node.Labels[name])
		}
		capacity := rendezvous.Capacity{Kind: k.Kind, Limit: k.Limit}
		switch k.Provider {
		case "exec":
			capacity.Provider = provider.Exec{Kind: k.Name, Command: k.Words, Agent: agent}
		case "slurm":
			capacity.Provider = provider.Slurm{Options: k.Words, Agent: agent}
		}
		all = append(all, capacity)
	}
	return all, nil
}
