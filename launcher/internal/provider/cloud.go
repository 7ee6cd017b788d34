package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Cloud asks a cloud for machines, and starts an agent on each over ssh. It finds its machines by
// their tags in the cloud, so it keeps no file about them.
type Cloud struct {
	cfg CloudConfig
	api cloud

	mu sync.Mutex
	// machines has the machines of the last list, by tag.
	machines map[string]Machine
}

// CloudConfig has the common settings of the machines of a kind.
type CloudConfig struct {
	// Cluster and Kind are the names in the tags by which golaunch finds the machines.
	Cluster, Kind string
	// Tags are further tags of the machines.
	Tags  map[string]string
	Agent Agent
	Login Login
	// Token is the token with which agents join. golaunch sends it through ssh's standard input.
	Token string
	// Setup are commands that run on a machine before its agent starts. Files are copied to the
	// machine before Setup runs.
	Setup []string
	Files []File
}

// The cloud's tags of a machine. The machine's name is the tag that the coordinator chose for it.
const (
	clusterTag = "golaunch-cluster"
	kindTag    = "golaunch-kind"
)

// Machine is a machine as its cloud lists it.
type Machine struct {
	// Tag is the machine's name, and ID the cloud's name for it.
	Tag, ID string
	// State is the cloud's word for the machine's state, to be shown to people. Running says that a
	// login may work.
	State   string
	Running bool
	// Private and Public are the machine's addresses, if it has them.
	Private, Public string
}

// cloud calls the command of a cloud. list returns the machines of a kind, or of the whole cluster
// if kind is empty.
type cloud interface {
	// create asks for machines. After an error, some of them may exist. A tag that may have had a
	// machine before needs a nonce.
	create(ctx context.Context, tags []string, nonce string) error
	list(ctx context.Context, kind string) ([]Machine, error)
	remove(ctx context.Context, all []Machine) error
	// line returns a command line that create runs.
	line(tag string) []string
}

// usualUsers are the users that golaunch has a cloud create on its machines. On AWS, the machine's
// image has a user already.
var usualUsers = map[string]string{"azure": "azureuser", "gcp": "golaunch"}

// NewCloud returns a provider for words: options of the command that creates machines in a cloud,
// one of aws, azure and gcp.
func NewCloud(name string, words []string, cfg CloudConfig) (*Cloud, error) {
	o, err := parseOptions(words)
	if err != nil {
		return nil, err
	}
	if usual := usualUsers[name]; cfg.Login.User == "" {
		cfg.Login.User = usual
	}
	p := &Cloud{cfg: cfg}
	switch name {
	case "aws":
		p.api, err = newAWS(o, cfg)
	case "azure":
		p.api, err = newAzure(o, cfg)
	case "gcp":
		p.api, err = newGCP(o, cfg)
	default:
		err = fmt.Errorf("%q is no cloud", name)
	}
	return p, err
}

// Create implements rendezvous.Provider.
func (p *Cloud) Create(ctx context.Context, tags []string) error {
	return p.api.create(ctx, tags, "")
}

// CreateAgain asks for a machine whose tag an earlier machine may have had. Calls with the same
// nonce make one machine together.
func (p *Cloud) CreateAgain(ctx context.Context, tag, nonce string) error {
	return p.api.create(ctx, []string{tag}, nonce)
}

// Login returns the settings with which ssh logs in to the cloud's machines.
func (p *Cloud) Login() Login { return p.cfg.Login }

// Line implements Provider.
func (p *Cloud) Line(tag string) []string { return p.api.line(tag) }

// List implements rendezvous.Provider.
func (p *Cloud) List(ctx context.Context) (map[string]string, error) {
	all, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for tag, m := range all {
		states[tag] = m.State
	}
	return states, nil
}

// look asks the cloud for the machines of the kind.
func (p *Cloud) look(ctx context.Context) (map[string]Machine, error) {
	all, err := p.api.list(ctx, p.cfg.Kind)
	if err != nil {
		return nil, err
	}
	machines := map[string]Machine{}
	for _, m := range all {
		machines[m.Tag] = m
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machines = machines
	return machines, nil
}

// Delete implements rendezvous.Provider.
func (p *Cloud) Delete(ctx context.Context, tags []string) error {
	all, err := p.look(ctx)
	if err != nil {
		return err
	}
	var remove []Machine
	for _, tag := range tags {
		if m, there := all[tag]; there {
			remove = append(remove, m)
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return p.api.remove(ctx, remove)
}

// Cluster returns all machines of the cluster, of any kind.
func (p *Cloud) Cluster(ctx context.Context) ([]Machine, error) { return p.api.list(ctx, "") }

// Remove deletes machines.
func (p *Cloud) Remove(ctx context.Context, all []Machine) error { return p.api.remove(ctx, all) }

// If no machine of the cluster is left, RemoveRest deletes all other resources that the cloud has
// made for the machines, such as their network. Only Azure leaves such resources.
func (p *Cloud) RemoveRest(ctx context.Context) error {
	a, is := p.api.(azure)
	if !is {
		return nil
	}
	if all, err := p.Cluster(ctx); err != nil || len(all) > 0 {
		return err
	}
	return a.removeRest(ctx)
}

// Deliver implements rendezvous.Deliverer.
func (p *Cloud) Deliver(ctx context.Context, tags []string) (states, failed map[string]string) {
	p.mu.Lock()
	machines := maps.Clone(p.machines)
	p.mu.Unlock()
	states, failed = map[string]string{}, map[string]string{}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(fanOut)
	for _, tag := range tags {
		m := machines[tag]
		if !m.Running || m.Private == "" {
			continue
		}
		all.Go(func() error {
			state, err := p.install(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[tag] = err.Error()
			} else {
				states[tag] = m.State + ", " + state
			}
			return nil
		})
	}
	_ = all.Wait() // each call has added its error to errs
	return states, failed
}

// tags returns the tags that each machine gets in its cloud.
func (c CloudConfig) tags() map[string]string {
	all := maps.Clone(c.Tags)
	if all == nil {
		all = map[string]string{}
	}
	all[clusterTag], all[kindTag] = c.Cluster, c.Kind
	return all
}

// pairs returns the entries of a map as KEY=VALUE, in order.
func pairs(m map[string]string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+"="+m[key])
	}
	return all
}

// decode reads a list in JSON that a command has printed.
func decode[T any](name string, out []byte) (all []T, err error) {
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, errNonsense(name, out, err)
	}
	return all, nil
}

// atOnce bounds how many commands run at the same time. Each asks for one machine.
const atOnce = 8

// each calls f for each tag, and begins no more calls after an error.
func each(tags []string, f func(tag string) error) error {
	var all errgroup.Group
	all.SetLimit(atOnce)
	var mu sync.Mutex
	failed := false
	for _, tag := range tags {
		all.Go(func() error {
			mu.Lock()
			skip := failed
			mu.Unlock()
			if skip {
				return nil
			}
			err := f(tag)
			if err != nil {
				mu.Lock()
				failed = true
				mu.Unlock()
			}
			return err
		})
	}
	return all.Wait()
}
