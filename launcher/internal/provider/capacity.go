package provider

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// Cluster is the cluster that new nodes join, with the token that admits them.
type Cluster struct {
	// Coordinator has the HOST:PORT of each coordinator, separated by commas. It is empty if there
	// will be no coordinator.
	Coordinator string
	// TokenFile is the file of the coordinator's token; empty for the default file. Token is the
	// token itself.
	TokenFile, Token string
}

// Capacity returns the kinds of nodes that a cluster's coordinator may ask for, with their
// providers. path is the path of file.
func Capacity(ctx context.Context, path string, file capacityfile.File, c Cluster) ([]rendezvous.Capacity, error) {
	if len(file.Kinds) == 0 {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the program that new nodes run: %w", err)
	}
	token := c.TokenFile
	if token != "" { // an absolute path, because agents have other working directories
		if token, err = filepath.Abs(token); err != nil {
			return nil, err
		}
	}
	var all []rendezvous.Capacity
	for _, k := range file.Kinds {
		agent := Agent{Golaunch: self, Coordinator: c.Coordinator, TokenFile: token, Flags: k.Agent}
		for _, name := range slices.Sorted(maps.Keys(k.Node.Labels)) {
			agent.Labels = append(agent.Labels, name+"="+k.Node.Labels[name])
		}
		capacity := rendezvous.Capacity{Kind: k.Kind, Limit: k.Limit}
		p, err := New(ctx, file, k, agent, c.Token)
		if cloud, is := p.(*Cloud); is && err == nil && c.Coordinator != "" {
			err = fillShape(ctx, cloud, &capacity)
		}
		if err != nil {
			return nil, usage.Errorf("%s: %s: %w", path, k.Name, err)
		}
		capacity.Provider = p
		all = append(all, capacity)
	}
	return all, nil
}

// fillShape asks the cloud how many GPUs and CPUs the nodes of a kind have, if the file does not
// say it.
func fillShape(ctx context.Context, cloud *Cloud, c *rendezvous.Capacity) error {
	if len(c.Node.GPUs) > 0 || c.Node.CPUs > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	gpus, cpus, err := cloud.Shape(ctx)
	if err != nil {
		return fmt.Errorf("cannot tell what its nodes bring: %w", err)
	}
	c.Node.CPUs = cpus
	for i := range gpus {
		c.Node.GPUs = append(c.Node.GPUs, placement.GPU{Index: i})
	}
	return nil
}
