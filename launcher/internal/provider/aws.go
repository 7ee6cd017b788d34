package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// aws calls the command of AWS.
type aws struct {
	cfg CloudConfig
	// options are options of run-instances. everywhere are options of all commands.
	options, everywhere []string
}

// awsGlobal are options of all commands of aws.
var awsGlobal = []string{"--region", "--profile", "--endpoint-url", "--no-verify-ssl", "--ca-bundle", "--cli-connect-timeout", "--cli-read-timeout"}

func newAWS(o options, cfg CloudConfig) (aws, error) {
	err := o.refuse("--count", "--client-token", "--tag-specifications", "--instance-initiated-shutdown-behavior", "--cli-input-json", "--generate-cli-skeleton",
		"--dry-run", "--output", "--query")
	if err == nil && !o.has("--instance-type", "--launch-template") {
		err = errors.New("there is no --instance-type")
	}
	if _, given := cfg.Tags["Name"]; given && err == nil {
		err = errors.New("golaunch sets the tag Name itself")
	}
	a := aws{cfg: cfg, options: o.without(awsGlobal...), everywhere: o.only(awsGlobal...)}
	// If the user has a key and names a launch template, the template may have the key, and user
	// data that these options would replace.
	ours := !o.has("--key-name", "--user-data") && !(cfg.Login.Own && o.has("--launch-template"))
	if err == nil && cfg.Login.PublicKey != "" && ours {
		a.options = append(a.options, "--user-data", fmt.Sprintf("#cloud-config\nssh_authorized_keys: [%q]\n", cfg.Login.PublicKey))
	}
	return a, err
}

// awsEnv makes the command repeat throttled calls, and print without a pager.
var awsEnv = []string{"AWS_RETRY_MODE=standard", "AWS_MAX_ATTEMPTS=5", "AWS_PAGER="}

func (a aws) call(ctx context.Context, words ...string) ([]byte, error) {
	args := append([]string{"ec2"}, words...)
	return call{env: awsEnv, name: "aws", args: append(append(args, "--output", "json"), a.everywhere...)}.run(ctx)
}

// words returns the command that creates the instance of a tag. EC2 makes only one instance for a
// client token, no matter how many calls have the token. It remembers the token for a day after the
// instance has ended, so a tag that is used again needs a nonce.
func (a aws) words(tag, nonce string) []string {
	var tags []string
	for _, pair := range pairs(a.cfg.tags()) {
		key, value, _ := strings.Cut(pair, "=")
		tags = append(tags, fmt.Sprintf("{Key=%s,Value=%s}", quoted(key), quoted(value)))
	}
	tags = append(tags, "{Key=Name,Value="+tag+"}")
	return append([]string{
		"run-instances", "--count", "1", "--client-token", tag + nonce, "--instance-initiated-shutdown-behavior", "terminate",
		"--tag-specifications", "ResourceType=instance,Tags=[" + strings.Join(tags, ",") + "]",
	}, a.options...)
}

// quoted quotes a text for the command's shorthand syntax.
func quoted(text string) string {
	if !strings.ContainsAny(text, " ,={}[]'\"\\") {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func (a aws) create(ctx context.Context, tags []string, nonce string) error {
	return each(tags, func(tag string) error {
		_, err := a.call(ctx, a.words(tag, nonce)...)
		return err
	})
}

func (a aws) line(tag string) []string {
	return append(append([]string{"aws", "ec2"}, a.words(tag, "")...), a.everywhere...)
}

// awsFields are the fields that list reads of each instance.
const awsFields = "Reservations[].Instances[].{ID:InstanceId,State:State.Name,Why:StateReason.Message,Private:PrivateIpAddress,Public:PublicIpAddress,Tags:Tags}"

func (a aws) list(ctx context.Context, kind string) ([]Machine, error) {
	filters := []string{"Name=tag:" + clusterTag + ",Values=" + a.cfg.Cluster, "Name=instance-state-name,Values=pending,running,stopping,stopped,shutting-down"}
	if kind != "" {
		filters = append(filters, "Name=tag:"+kindTag+",Values="+kind)
	}
	out, err := a.call(ctx, append([]string{"describe-instances", "--query", awsFields, "--filters"}, filters...)...)
	if err != nil {
		return nil, err
	}
	type instance struct {
		ID, State, Why, Private, Public string
		Tags                            []struct{ Key, Value string }
	}
	found, err := decode[instance]("aws", out)
	if err != nil {
		return nil, err
	}
	var all []Machine
	for _, i := range found {
		m := Machine{ID: i.ID, State: "instance " + i.ID + ", " + i.State, Running: i.State == "running", Private: i.Private, Public: i.Public}
		if i.Why != "" && i.State != "running" {
			m.State += ": " + i.Why
		}
		for _, tag := range i.Tags {
			if tag.Key == "Name" {
				m.Tag = tag.Value
			}
		}
		if m.ID == "" {
			return nil, errNonsense("aws", out, errors.New("an instance has no ID"))
		}
		all = append(all, m)
	}
	return all, nil
}

func (a aws) remove(ctx context.Context, all []Machine) error {
	words := []string{"terminate-instances", "--instance-ids"}
	for _, m := range all {
		words = append(words, m.ID)
	}
	_, err := a.call(ctx, words...)
	return err
}

// shape asks for the numbers of GPUs and CPUs of an instance type.
func (a aws) shape(ctx context.Context) (gpus, cpus int, err error) {
	o, err := parseOptions(a.options)
	if err != nil {
		return 0, 0, err
	}
	kinds := o.values("--instance-type")
	if len(kinds) == 0 {
		return 0, 0, errors.New("golaunch does not read launch templates: say how many gpus and cpus it has")
	}
	out, err := a.call(ctx, "describe-instance-types", "--instance-types", kinds[len(kinds)-1])
	if err != nil {
		return 0, 0, err
	}
	var answer struct {
		InstanceTypes []struct {
			VCpuInfo struct{ DefaultVCpus int }
			GpuInfo  struct{ Gpus []struct{ Count int } }
		}
	}
	if err = json.Unmarshal(out, &answer); err == nil && len(answer.InstanceTypes) != 1 {
		err = errors.New("want one instance type")
	}
	if err != nil {
		return 0, 0, errNonsense("aws", out, err)
	}
	kind := answer.InstanceTypes[0]
	for _, g := range kind.GpuInfo.Gpus {
		gpus += cmp.Or(g.Count, 1)
	}
	return gpus, kind.VCpuInfo.DefaultVCpus, nil
}

// Shape returns the numbers of GPUs and CPUs of a machine of this kind. Only AWS provides them.
func (p *Cloud) Shape(ctx context.Context) (gpus, cpus int, err error) {
	if a, is := p.api.(aws); is {
		return a.shape(ctx)
	}
	return 0, 0, errors.New("say how many gpus and cpus it has")
}
