package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// azure calls the command of Azure. The name of a machine is its tag.
type azure struct {
	cfg CloudConfig
	// options are options of vm create. everywhere are options of all commands. group is the option
	// that names the resource group.
	options, everywhere, group []string
	// tags are the tags in the user's options.
	tags []string
}

func newAzure(o options, cfg CloudConfig) (azure, error) {
	const group, subscription = "--resource-group", "--subscription"
	a := azure{cfg: cfg, everywhere: o.only(subscription), group: o.only(group), tags: o.values("--tags")}
	if err := o.refuse("--no-wait", "--output", "--query", "--name", "--count", "--admin-password", "--generate-ssh-keys", "--nics"); err != nil {
		return a, err
	}
	if len(o.values(group)) != 1 {
		return a, errors.New("want one --resource-group")
	}
	if !o.has("--size") || !o.has("--image") {
		return a, errors.New("want --size and --image")
	}
	a.options = o.without(group, subscription, "--tags")
	defaults := []option{
		{name: "--admin-username", words: []string{"--admin-username", cfg.Login.User}},
		{name: "--vnet-name", words: []string{"--vnet-name", network(cfg.Cluster), "--subnet", "default"}},
		{name: "--public-ip-address", words: []string{"--public-ip-address", ""}},
		{name: "--nsg", words: []string{"--nsg", ""}},
		{name: "--authentication-type", words: []string{"--authentication-type", "ssh"}},
		// The disks and interfaces of a machine are deleted with it.
		{name: "--nic-delete-option", words: []string{"--nic-delete-option", "Delete"}},
		{name: "--os-disk-delete-option", words: []string{"--os-disk-delete-option", "Delete"}},
	}
	if cfg.Login.PublicKey != "" {
		defaults = append(defaults, option{name: "--ssh-key-values", words: []string{"--ssh-key-values", cfg.Login.PublicKey}})
	}
	if strings.EqualFold(strings.Join(o.values("--priority"), ""), "Spot") {
		defaults = append(defaults, option{name: "--eviction-policy", words: []string{"--eviction-policy", "Delete"}})
	}
	if o.has("--data-disk-sizes-gb") && !o.has("--attach-data-disks") { // attached data disks belong to the user
		defaults = append(defaults, option{name: "--data-disk-delete-option", words: []string{"--data-disk-delete-option", "Delete"}})
	}
	for _, d := range defaults {
		if !o.has(d.name) && !(d.name == "--vnet-name" && o.has("--subnet")) {
			a.options = append(a.options, d.words...)
		}
	}
	return a, nil
}

// network is the virtual network of a cluster whose file names no network. az makes the network
// with the first machine, and tags it, like everything that az makes for a machine, with the
// machine's tags.
func network(cluster string) string { return "golaunch-" + cluster }

func (a azure) call(ctx context.Context, words ...string) ([]byte, error) {
	args := append(append([]string{}, words...), a.everywhere...)
	return call{name: "az", args: append(args, "--only-show-errors", "--output", "json")}.run(ctx)
}

func (a azure) words(tag string) []string {
	words := append([]string{"vm", "create", "--name", tag}, a.group...)
	words = append(append(words, "--tags"), append(pairs(a.cfg.tags()), a.tags...)...)
	return append(words, a.options...)
}

// create waits for each machine, because lists omit a machine until its deployment has made it.
func (a azure) create(ctx context.Context, tags []string, _ string) error {
	return each(tags, func(tag string) error {
		_, err := a.call(ctx, a.words(tag)...)
		return err
	})
}

func (a azure) line(tag string) []string {
	return append(append([]string{"az"}, a.words(tag)...), a.everywhere...)
}

func (a azure) list(ctx context.Context, kind string) ([]Machine, error) {
	query := fmt.Sprintf("tags.%q=='%s'", clusterTag, a.cfg.Cluster)
	if kind != "" {
		query += fmt.Sprintf(" && tags.%q=='%s'", kindTag, kind)
	}
	query = "[?" + query + "].{ID:id,Name:name,Power:powerState,State:provisioningState,Private:privateIps,Public:publicIps}"
	out, err := a.call(ctx, append(append([]string{"vm", "list"}, a.group...), "--show-details", "--query", query)...)
	if err != nil {
		return nil, err
	}
	type machine struct{ ID, Name, Power, State, Private, Public string }
	found, err := decode[machine]("az", out)
	if err != nil {
		return nil, err
	}
	var all []Machine
	for _, v := range found {
		if v.Name == "" || v.ID == "" {
			return nil, errNonsense("az", out, errors.New("a machine has no name or ID"))
		}
		state := strings.ToLower(v.State)
		if v.Power != "" {
			state = strings.ToLower(strings.TrimPrefix(v.Power, "VM "))
		}
		private, _, _ := strings.Cut(v.Private, ",")
		public, _, _ := strings.Cut(v.Public, ",")
		all = append(all, Machine{Tag: v.Name, ID: v.ID, State: "machine " + state, Running: state == "running", Private: private, Public: public})
	}
	return all, nil
}

func (a azure) remove(ctx context.Context, all []Machine) error {
	words := []string{"vm", "delete", "--yes", "--no-wait", "--ids"}
	for _, m := range all {
		words = append(words, m.ID)
	}
	_, err := a.call(ctx, words...)
	return err
}

// rest returns the IDs of the resources that az has made for machines of the cluster and that still
// exist.
func (a azure) rest(ctx context.Context) ([]string, error) {
	query := fmt.Sprintf("[?tags.%q=='%s'].{ID:id}", clusterTag, a.cfg.Cluster)
	out, err := a.call(ctx, append(append([]string{"resource", "list"}, a.group...), "--query", query)...)
	if err != nil {
		return nil, err
	}
	found, err := decode[struct{ ID string }]("az", out)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, f := range found {
		if f.ID == "" {
			return nil, errNonsense("az", out, errors.New("a resource has no ID"))
		}
		ids = append(ids, f.ID)
	}
	return ids, nil
}

const (
	// restLimit bounds the time for the deletion of the resources of machines that are gone.
	// restEvery is the time between two lists of these resources, since there is no event for the
	// end of the deletion.
	restLimit, restEvery = 10 * time.Minute, 5 * time.Second
)

// removeRest deletes the resources of machines that are gone, until a list of these resources is
// empty. Azure cannot delete a resource while another one, which is still being deleted, uses it.
func (a azure) removeRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	for {
		ids, err := a.rest(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err = a.call(ctx, append([]string{"resource", "delete", "--ids"}, ids...)...); err == nil {
			continue
		}
		select {
		case <-time.After(restEvery):
		case <-ctx.Done():
			return fmt.Errorf("%d resources of the machines are left, such as %s: %w", len(ids), ids[0], err)
		}
	}
}
