package provider

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
)

// Provider is a rendezvous.Provider that can show its command lines.
type Provider interface {
	Create(ctx context.Context, tags []string) error
	List(ctx context.Context) (states map[string]string, err error)
	Delete(ctx context.Context, tags []string) error
	// Line returns a command line by which Create makes a node.
	Line(tag string) []string
}

// Sample returns a provider of a kind for showing its Line. Unlike New, it makes no key on this
// machine.
func Sample(ctx context.Context, file capacityfile.File, k capacityfile.Kind, agent Agent) (Provider, error) {
	return newProvider(ctx, file, k, agent, "", sampleLogin)
}

// New returns the provider of a kind. The secret is the token with which its agents join, if they
// have no file with the token.
func New(ctx context.Context, file capacityfile.File, k capacityfile.Kind, agent Agent, secret string) (Provider, error) {
	return newProvider(ctx, file, k, agent, secret, NewLogin)
}

func newProvider(ctx context.Context, file capacityfile.File, k capacityfile.Kind, agent Agent, secret string,
	login func(ctx context.Context, user, key, dir string) (Login, error),
) (Provider, error) {
	switch k.Provider {
	case "exec":
		return Exec{Kind: k.Name, Command: k.Words, Agent: agent}, nil
	case "slurm":
		return Slurm{Options: k.Words, Agent: agent}, nil
	}
	agent.TokenFile = "" // pods get the token from a Secret, and other nodes get it from this process
	switch k.Provider {
	case "kubernetes":
		return NewKubernetes(k.Name, k.Words, agent)
	case "ssh":
		return NewSSH(k.Words, agent, secret)
	}
	home, err := account.Home()
	if err != nil {
		return nil, fmt.Errorf("cannot find a directory for the keys of machines: %w", err)
	}
	l, err := login(ctx, file.User, file.Key, filepath.Join(home, ".golaunch", "clusters", file.Name))
	if err != nil {
		return nil, err
	}
	cfg := CloudConfig{Cluster: file.Name, Kind: k.Name, Tags: k.Tags, Agent: agent, Login: l, Token: secret, Setup: k.Setup}
	cfg.Files = Files(file)
	return NewCloud(k.Provider, k.Words, cfg)
}

// Files returns the files that machines get according to the cluster's file.
func Files(file capacityfile.File) (all []File) {
	for _, f := range file.Files {
		all = append(all, File{To: f.To, From: f.From})
	}
	return all
}
