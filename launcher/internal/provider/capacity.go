package provider

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/rendezvous"
)

// Cluster is where new nodes come to, and what lets them in.
type Cluster struct {
	// Coordinator is where the coordinators are: HOST:PORT of each, with commas.
	Coordinator string
	// TokenFile has the token that the coordinator was given; empty for the default. Token is its
	// text.
	TokenFile, Token string
}

// Capacity are the nodes that a cluster's coordinator may ask for. file is the one that says so.
func Capacity(file string, kinds []capacityfile.Kind, c Cluster) ([]rendezvous.Capacity, error) {
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
		agent := Agent{Golaunch: self, Coordinator: c.Coordinator, TokenFile: token, Flags: k.Agent}
		for _, name := range slices.Sorted(maps.Keys(k.Node.Labels)) {
			agent.Labels = append(agent.Labels, name+"="+k.Node.Labels[name])
		}
		capacity := rendezvous.Capacity{Kind: k.Kind, Limit: k.Limit}
		switch k.Provider {
		case "exec":
			capacity.Provider = Exec{Kind: k.Name, Command: k.Words, Agent: agent}
		case "kubernetes":
			agent.TokenFile = "" // pods have a Secret
			capacity.Provider, err = NewKubernetes(k.Name, k.Words, agent)
		case "slurm":
			capacity.Provider = Slurm{Options: k.Words, Agent: agent}
		case "ssh":
			agent.TokenFile = ""
			capacity.Provider, err = NewSSH(k.Words, agent, c.Token)
		}
		if err != nil {
			return nil, usage.Errorf("%s: %s: %w", file, k.Name, err)
		}
		all = append(all, capacity)
	}
	return all, nil
}
