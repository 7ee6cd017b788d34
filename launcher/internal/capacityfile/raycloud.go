package capacityfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// rayCloud is the cloud that a file of Ray's names as its provider, with the options that all nodes
// share.
type rayCloud struct {
	kind  string
	words []string
	tags  map[string]string
}

// rayProviderFields are the fields of a provider whose value may be empty.
var rayProviderFields = []string{
	"region", "availability_zone", "project_id", "location", "resource_group", "subscription_id", "cache_stopped_nodes", "security_group", "tags",
	"use_internal_ips",
}

// setProvider takes a field of the provider section of a file of Ray's.
func (r *rayFile) setProvider(key string, at, n *yaml.Node) error {
	c := &r.cloud
	if key == "type" {
		text, err := scalar(n, "a type of provider")
		if err == nil && !slices.Contains(append([]string{"local"}, Clouds...), text) {
			return wrong(n, strings.Join(Clouds, ", ")+" or local")
		}
		c.kind = text
		return err
	}
	if void(n) && slices.Contains(rayProviderFields, key) {
		return nil
	}
	kind := ""
	for i := 0; i+1 < len(r.provider.Content); i += 2 {
		if r.provider.Content[i].Value == "type" {
			kind = r.provider.Content[i+1].Value
		}
	}
	option := map[string]string{
		"aws region": "--region", "gcp project_id": "--project", "gcp availability_zone": "--zone", "azure location": "--location",
		"azure resource_group": "--resource-group", "azure subscription_id": "--subscription", "azure availability_zone": "--zone",
	}[kind+" "+key]
	switch {
	case option != "":
		text, err := word(n, "a name")
		c.words = append(c.words, option+"="+text)
		return err
	case key == "availability_zone":
		text, err := word(n, "a zone")
		first, more, _ := strings.Cut(text, ",")
		if more != "" {
			r.note(at, "golaunch asks for nodes in "+first+" only; make a node type for each zone")
		}
		c.words = append(c.words, "--placement=AvailabilityZone="+first)
		return err
	case key == "use_internal_ips":
		r.Public = n.Value != "true"
		return nil
	case kind == "gcp" && key == "region": // ignored: the zone implies the region
		return nil
	case key == "cache_stopped_nodes":
		r.note(at, "not served: golaunch deletes the nodes that it gives back")
		return nil
	case kind == "aws" && key == "security_group":
		r.note(at, "golaunch makes no security group: name yours in node_config.SecurityGroupIds")
		return nil
	case kind == "azure" && key == "tags":
		tags, err := texts(n)
		c.tags = tags
		return err
	case kind == "local" && key == "head_ip":
		text, err := word(n, "a host")
		r.Head.Host = text
		return err
	case kind == "local" && key == "worker_ips":
		r.worker = n
		return nil
	}
	return fmt.Errorf("line %d: %q is no field of Ray's provider %s that golaunch knows", at.Line, key, kind)
}

// config turns the node_config of a node type into options of the cloud's command.
func (c *rayCloud) config(r *rayFile, k *Kind, n *yaml.Node) error {
	maps.Copy(k.Tags, c.tags)
	switch c.kind {
	case "aws":
		return each(n, func(key string, at, n *yaml.Node) error { return awsField(r, k, key, at, n) })
	case "gcp":
		return each(n, func(key string, at, n *yaml.Node) error { return gcpField(k, key, at, n) })
	default:
		return each(n, func(key string, at, n *yaml.Node) error { return azureField(k, key, at, n) })
	}
}

// add adds an option. Its value must be a scalar.
func (k *Kind) add(option string, n *yaml.Node) error {
	text, err := scalar(n, "a value")
	k.Words = append(k.Words, option+"="+text)
	return err
}

// The fields of EC2's RunInstances that golaunch takes: texts, lists of texts, and structures.
var (
	awsTexts      = []string{"ImageId", "InstanceType", "KeyName", "SubnetId", "UserData", "KernelId", "RamdiskId"}
	awsLists      = []string{"SecurityGroupIds", "SecurityGroups"}
	awsStructures = []string{
		"BlockDeviceMappings", "CapacityReservationSpecification", "CpuOptions", "CreditSpecification", "EnclaveOptions", "IamInstanceProfile",
		"InstanceMarketOptions", "LaunchTemplate", "LicenseSpecifications", "MaintenanceOptions", "MetadataOptions", "NetworkInterfaces", "Placement",
		"PrivateDnsNameOptions",
	}
)

// awsField turns a field of EC2's RunInstances into an option of the command: ImageId becomes
// --image-id.
func awsField(r *rayFile, k *Kind, key string, at, n *yaml.Node) error {
	option := "--" + kebab(key)
	switch {
	case slices.Contains(awsTexts, key):
		return k.add(option, n)
	case slices.Contains(awsLists, key):
		all, err := words(n)
		k.Words = append(append(k.Words, option), all...)
		return err
	case slices.Contains(awsStructures, key):
		if key == "Placement" { // Placement replaces the provider's zone, because it may say more
			k.Words = slices.DeleteFunc(k.Words, func(w string) bool { return strings.HasPrefix(w, "--placement=") })
		}
		var value any
		err := n.Decode(&value)
		var text []byte
		if err == nil {
			text, err = json.Marshal(value)
		}
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", at.Line, key, err)
		}
		k.Words = append(k.Words, option, string(text))
	case key == "SubnetIds":
		all, err := words(n)
		if err != nil || len(all) == 0 {
			return wrong(n, "subnets")
		}
		if len(all) > 1 {
			r.note(at, "golaunch asks for nodes in "+all[0]+" only; make a node type for each subnet")
		}
		k.Words = append(k.Words, "--subnet-id="+all[0])
	case key == "EbsOptimized":
		if !void(n) {
			k.Words = append(k.Words, option)
		}
	case key == "TagSpecifications":
		return awsTags(r, k, at, n)
	case key == "MinCount" || key == "MaxCount":
		r.note(at, "not needed: golaunch asks for one instance at a time")
	default:
		return fmt.Errorf("line %d: %q is no field of RunInstances that golaunch passes on", at.Line, key)
	}
	return nil
}

// awsTags takes the tags of instances.
func awsTags(r *rayFile, k *Kind, at, n *yaml.Node) error {
	var all []struct {
		ResourceType string `yaml:"ResourceType"`
		Tags         []struct {
			Key   string `yaml:"Key"`
			Value string `yaml:"Value"`
		} `yaml:"Tags"`
	}
	if err := n.Decode(&all); err != nil {
		return wrong(n, "a list of ResourceType and Tags")
	}
	for _, s := range all {
		if s.ResourceType != "instance" {
			return fmt.Errorf("line %d: golaunch tags instances only", n.Line)
		}
		for _, tag := range s.Tags {
			if tag.Key == "Name" {
				r.note(at, "golaunch sets the tag Name itself")
				continue
			}
			k.Tags[tag.Key] = tag.Value
		}
	}
	return nil
}

// kebab turns a name such as ImageId into image-id.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// gcpField takes a field of Compute Engine's instances.insert.
func gcpField(k *Kind, key string, at, n *yaml.Node) error {
	switch key {
	case "machineType":
		return k.add("--machine-type", n)
	case "minCpuPlatform":
		return k.add("--min-cpu-platform", n)
	case "disks":
		return only(at, n, func(key string, at, n *yaml.Node) error { return gcpDisk(k, key, at, n) })
	case "scheduling":
		return only(at, n, func(key string, at, n *yaml.Node) error { return gcpScheduling(k, key, at, n) })
	case "guestAccelerators":
		var kind, count string
		err := only(at, n, func(key string, at, n *yaml.Node) (err error) {
			switch key {
			case "acceleratorType":
				kind, err = scalar(n, "a type of accelerator")
			case "acceleratorCount":
				count, err = scalar(n, "a number")
			default:
				err = unknown(at, "acceleratorType", "acceleratorCount")
			}
			return err
		})
		k.Words = append(k.Words, fmt.Sprintf("--accelerator=type=%s,count=%s", path.Base(kind), count))
		return err
	case "networkInterfaces":
		return only(at, n, func(key string, at, n *yaml.Node) error {
			switch key {
			case "subnetwork":
				return k.add("--subnet", n)
			case "network":
				return k.add("--network", n)
			case "kind", "accessConfigs", "aliasIpRanges":
				return nil
			}
			return unknown(at, "subnetwork", "network")
		})
	case "serviceAccounts":
		return only(at, n, func(key string, at, n *yaml.Node) error {
			if key == "email" {
				return k.add("--service-account", n)
			}
			all, err := words(n)
			if key != "scopes" {
				return unknown(at, "email", "scopes")
			}
			k.Words = append(k.Words, "--scopes="+strings.Join(all, ","))
			return err
		})
	case "labels":
		tags, err := texts(n)
		maps.Copy(k.Tags, tags)
		return err
	case "tags", "metadata":
		return gcpItems(k, key, n)
	}
	return fmt.Errorf("line %d: %q is no field of instances.insert that golaunch passes on", at.Line, key)
}

// only takes the fields of a mapping, or of the only mapping in a list.
func only(at, n *yaml.Node, f func(key string, at, n *yaml.Node) error) error {
	if n.Kind == yaml.SequenceNode {
		if len(n.Content) != 1 {
			return fmt.Errorf("line %d: %s: golaunch passes on one of them", at.Line, at.Value)
		}
		n = n.Content[0]
	}
	return each(n, f)
}

func gcpDisk(k *Kind, key string, at, n *yaml.Node) error {
	switch key {
	case "boot", "autoDelete", "type":
		return nil
	case "initializeParams":
	default:
		return unknown(at, "initializeParams")
	}
	return each(n, func(key string, at, n *yaml.Node) error {
		text, err := scalar(n, "a value")
		if err != nil {
			return err
		}
		switch key {
		case "diskSizeGb":
			k.Words = append(k.Words, "--boot-disk-size="+text+"GB")
		case "diskType":
			k.Words = append(k.Words, "--boot-disk-type="+path.Base(text))
		case "sourceImage":
			image, ok := gcpImage(text)
			if !ok {
				return wrong(n, "projects/PROJECT/global/images/IMAGE or .../images/family/FAMILY")
			}
			k.Words = append(k.Words, image...)
		default:
			return unknown(at, "diskSizeGb", "diskType", "sourceImage")
		}
		return nil
	})
}

// gcpImage returns the options for an image, which is named as in
// projects/P/global/images/family/F.
func gcpImage(text string) ([]string, bool) {
	_, rest, found := strings.Cut(text, "projects/")
	project, image, global := strings.Cut(rest, "/global/images/")
	if !found || !global || project == "" || image == "" {
		return nil, false
	}
	if family, is := strings.CutPrefix(image, "family/"); is {
		return []string{"--image-family=" + family, "--image-project=" + project}, true
	}
	return []string{"--image=" + image, "--image-project=" + project}, true
}

func gcpScheduling(k *Kind, key string, at, n *yaml.Node) error {
	switch key {
	case "preemptible":
		if n.Value == "true" {
			k.Words = append(k.Words, "--provisioning-model=SPOT", "--instance-termination-action=DELETE")
		}
		return nil
	case "provisioningModel":
		return k.add("--provisioning-model", n)
	case "instanceTerminationAction":
		return k.add("--instance-termination-action", n)
	case "onHostMaintenance":
		return k.add("--maintenance-policy", n)
	case "automaticRestart":
		if n.Value == "false" {
			k.Words = append(k.Words, "--no-restart-on-failure")
		}
		return nil
	}
	return unknown(at, "preemptible", "provisioningModel", "instanceTerminationAction", "onHostMaintenance", "automaticRestart")
}

// gcpItems takes network tags, or metadata.
func gcpItems(k *Kind, field string, n *yaml.Node) error {
	return each(n, func(key string, at, n *yaml.Node) error {
		if key != "items" {
			return unknown(at, "items")
		}
		if field == "tags" {
			all, err := words(n)
			k.Words = append(k.Words, "--tags="+strings.Join(all, ","))
			return err
		}
		var items []struct{ Key, Value string }
		if err := n.Decode(&items); err != nil {
			return wrong(n, "a list of key and value")
		}
		for _, item := range items {
			if strings.ContainsAny(item.Key+item.Value, ",") {
				return wrong(n, "values without commas")
			}
			k.Words = append(k.Words, "--metadata="+item.Key+"="+item.Value)
		}
		return nil
	})
}

// azureField takes a parameter of Ray's template for a machine.
func azureField(k *Kind, key string, at, n *yaml.Node) error {
	if key == "azure_arm_tags" {
		tags, err := texts(n)
		maps.Copy(k.Tags, tags)
		return err
	}
	if key != "azure_arm_parameters" {
		return unknown(at, "azure_arm_parameters")
	}
	image := map[string]string{}
	err := each(n, func(key string, at, n *yaml.Node) error {
		option := map[string]string{
			"vmSize": "--size", "priority": "--priority", "evictionPolicy": "--eviction-policy", "osDiskSizeGB": "--os-disk-size-gb",
			"imageId": "--image", "subnet": "--subnet", "zone": "--zone",
		}[key]
		switch {
		case option != "":
			return k.add(option, n)
		case slices.Contains([]string{"imagePublisher", "imageOffer", "imageSku", "imageVersion"}, key):
			text, err := word(n, "a part of an image's name")
			image[key] = text
			return err
		case key == "billingProfile":
			return each(n, func(key string, at, n *yaml.Node) error {
				if key != "maxPrice" {
					return unknown(at, "maxPrice")
				}
				return k.add("--max-price", n)
			})
		}
		return unknown(at, "vmSize", "imagePublisher", "imageOffer", "imageSku", "imageVersion", "imageId", "priority", "evictionPolicy", "billingProfile",
			"osDiskSizeGB", "subnet", "zone")
	})
	if len(image) > 0 && err == nil {
		if len(image) != 4 {
			return fmt.Errorf("line %d: an image has imagePublisher, imageOffer, imageSku and imageVersion", n.Line)
		}
		k.Words = append(k.Words, fmt.Sprintf("--image=%s:%s:%s:%s", image["imagePublisher"], image["imageOffer"], image["imageSku"], image["imageVersion"]))
	}
	return err
}
