package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// gcp calls the command of Google Cloud. The name of an instance is its tag.
type gcp struct {
	cfg CloudConfig
	// options are options of instances create. everywhere are options of all commands. zone is the
	// option that names the zone.
	options, everywhere []string
	zone                string
}

// gcpGlobal are options of all commands of gcloud.
var gcpGlobal = []string{"--project", "--account", "--configuration", "--impersonate-service-account", "--billing-project"}

func newGCP(o options, cfg CloudConfig) (gcp, error) {
	g := gcp{cfg: cfg, everywhere: o.only(gcpGlobal...)}
	if err := o.refuse("--async", "--format", "--quiet", "--filter"); err != nil {
		return g, err
	}
	zones := o.values("--zone")
	if len(zones) != 1 {
		return g, errors.New("want one --zone")
	}
	if !o.has("--machine-type") {
		return g, errors.New("there is no --machine-type")
	}
	g.zone = zones[0]
	// If an option occurs several times, gcloud takes only the last, so all labels must be in one
	// option.
	labels := append(pairs(cfg.tags()), o.values("--labels")...)
	metadata := o.values("--metadata")
	if cfg.Login.PublicKey != "" {
		metadata = append([]string{"ssh-keys=" + cfg.Login.User + ":" + cfg.Login.PublicKey}, metadata...)
	}
	g.options = append(o.without(append([]string{"--zone", "--labels", "--metadata"}, gcpGlobal...)...), "--labels="+strings.Join(labels, ","))
	if len(metadata) > 0 {
		g.options = append(g.options, "--metadata="+strings.Join(metadata, ","))
	}
	return g, nil
}

func (g gcp) words(verb string, words ...string) []string {
	return append(append([]string{"compute", "instances", verb}, words...), g.everywhere...)
}

func (g gcp) call(ctx context.Context, verb string, words ...string) ([]byte, error) {
	return call{name: "gcloud", args: append(g.words(verb, words...), "--quiet")}.run(ctx)
}

// createWords returns the command that creates instances. If some fail, gcloud creates the others.
// The command waits for the instances, because otherwise gcloud would not report that a zone has no
// capacity.
func (g gcp) createWords(tags []string) []string {
	return append(append(append([]string{}, tags...), "--zone="+g.zone), g.options...)
}

func (g gcp) create(ctx context.Context, tags []string, _ string) error {
	_, err := g.call(ctx, "create", g.createWords(tags)...)
	return err
}

func (g gcp) line(tag string) []string {
	return append([]string{"gcloud"}, append(g.words("create", g.createWords([]string{tag})...), "--quiet")...)
}

func (g gcp) list(ctx context.Context, kind string) ([]Machine, error) {
	filter := fmt.Sprintf("labels.%s=%s", clusterTag, g.cfg.Cluster)
	if kind != "" {
		filter += fmt.Sprintf(" AND labels.%s=%s", kindTag, kind)
	}
	out, err := g.call(ctx, "list", "--zones="+g.zone, "--filter="+filter, "--format=json(name,status,statusMessage,networkInterfaces)")
	if err != nil {
		return nil, err
	}
	type instance struct {
		Name, Status, StatusMessage string
		NetworkInterfaces           []struct {
			NetworkIP     string
			AccessConfigs []struct{ NatIP string }
		}
	}
	found, err := decode[instance]("gcloud", out)
	if err != nil {
		return nil, err
	}
	var all []Machine
	for _, i := range found {
		if i.Name == "" {
			return nil, errNonsense("gcloud", out, errors.New("an instance has no name"))
		}
		m := Machine{Tag: i.Name, ID: i.Name, State: "instance " + strings.ToLower(i.Status), Running: i.Status == "RUNNING"}
		if i.StatusMessage != "" {
			m.State += ": " + i.StatusMessage
		}
		if len(i.NetworkInterfaces) > 0 {
			m.Private = i.NetworkInterfaces[0].NetworkIP
			if c := i.NetworkInterfaces[0].AccessConfigs; len(c) > 0 {
				m.Public = c[0].NatIP
			}
		}
		all = append(all, m)
	}
	return all, nil
}

func (g gcp) remove(ctx context.Context, all []Machine) error {
	var names []string
	for _, m := range all {
		names = append(names, m.ID)
	}
	_, err := g.call(ctx, "delete", append(names, "--zone="+g.zone)...)
	return err
}
