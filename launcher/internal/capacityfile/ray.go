package capacityfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/golaunch/golaunch/placement"
)

// isRay reports whether a file is written for Ray's cluster launcher.
func isRay(root *yaml.Node) bool {
	return root.Kind == yaml.MappingNode && slices.ContainsFunc(root.Content, func(n *yaml.Node) bool {
		return slices.Contains([]string{"cluster_name", "available_node_types", "head_node_type"}, n.Value)
	})
}

// rayFile is a file of Ray's cluster launcher. Its fields may come in any order.
type rayFile struct {
	File
	provider, types, headType, worker *yaml.Node
	initialize, workerSetup           []string
	minWorkers, maxWorkers            int
	idle                              time.Duration
	cloud                             rayCloud
}

// Ray's defaults: how many workers a cluster may have, and how long they may be idle.
const (
	rayWorkers = 2
	rayIdle    = 5 * time.Minute
)

// unserved are Ray's fields that have no effect here, each with the reason.
var unserved = map[string]string{
	"upscaling_speed":               "golaunch asks for all the nodes that the queue needs",
	"target_utilization_fraction":   "golaunch asks for the nodes that the queue needs",
	"autoscaling_mode":              "golaunch asks for the nodes that the queue needs",
	"initial_workers":               "use min_workers",
	"head_start_ray_commands":       "not needed: golaunch starts its coordinator",
	"worker_start_ray_commands":     "not needed: golaunch starts its agents",
	"cluster_synced_files":          "not served: use file_mounts",
	"file_mounts_sync_continuously": "not served: golaunch up copies files once",
	"rsync_exclude":                 "not served: file_mounts are copied whole",
	"rsync_filter":                  "not served: file_mounts are copied whole",
	"no_restart":                    "not needed: jobs go on while the coordinator restarts",
}

// note records that a part of the file has no effect, and why.
func (r *rayFile) note(at *yaml.Node, why string) {
	r.Notes = append(r.Notes, fmt.Sprintf("line %d: %s: %s", at.Line, at.Value, why))
}

// void reports whether a value sets nothing: whether it is empty, null or false, or has only such
// values.
func void(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Tag == "!!null" || n.Value == "" || n.Value == "false"
	default:
		for i, c := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				if !void(c) {
					return false
				}
			}
		}
		return true
	}
}

func parseRay(root *yaml.Node) (File, error) {
	r := &rayFile{maxWorkers: -1, idle: rayIdle}
	r.Public, r.Ray = true, true
	if err := each(root, r.set); err != nil {
		return File{}, err
	}
	if r.provider == nil {
		return File{}, fmt.Errorf("line %d: there is no provider", root.Line)
	}
	if err := each(r.provider, r.setProvider); err != nil {
		return File{}, err
	}
	switch r.cloud.kind {
	case "":
		return File{}, fmt.Errorf("line %d: the provider has no type; want %s or local", r.provider.Line, strings.Join(Clouds, ", "))
	case "local":
		return r.local()
	}
	if r.types == nil {
		return File{}, fmt.Errorf("line %d: there are no available_node_types; golaunch has no default machines", root.Line)
	}
	if r.maxWorkers < 0 {
		r.maxWorkers = rayWorkers
	}
	if err := each(r.types, r.nodeType); err != nil {
		return File{}, err
	}
	r.Setup = slices.Concat(r.initialize, r.Setup)
	r.Max = r.maxWorkers
	if r.headType == nil {
		return File{}, fmt.Errorf("line %d: there is no head_node_type", root.Line)
	}
	if r.Head.Kind = RayName(r.headType.Value); !slices.ContainsFunc(r.Kinds, func(k Kind) bool { return k.Name == r.Head.Kind }) {
		return File{}, wrong(r.headType, "one of available_node_types")
	}
	return r.File, nil
}

// set takes a field of the file.
func (r *rayFile) set(key string, at, n *yaml.Node) (err error) {
	if why := unserved[key]; why != "" {
		if !void(n) {
			r.note(at, why)
		}
		return nil
	}
	switch key {
	case "cluster_name":
		text, err := scalar(n, "the name of a cluster")
		if err != nil {
			return err
		}
		named := *n
		named.Value = RayName(text)
		r.Name, err = clusterName(&named)
		return err
	case "provider":
		r.provider = n
	case "available_node_types":
		r.types = n
	case "head_node_type":
		r.headType = n
		_, err = scalar(n, "one of available_node_types")
	case "min_workers":
		r.minWorkers, err = number(n, maxNodes)
	case "max_workers":
		r.maxWorkers, err = number(n, maxNodes)
	case "idle_timeout_minutes":
		r.idle, err = minutes(n)
	case "auth":
		err = each(n, r.auth)
	case "docker":
		if !void(n) {
			r.note(at, "not served: commands run on the machine itself, whose image must have what they need")
		}
	case "file_mounts":
		if !void(n) {
			r.Files, err = mounts(n)
		}
	case "initialization_commands":
		r.initialize, err = words(n)
	case "setup_commands":
		r.Setup, err = words(n)
	case "head_setup_commands":
		r.HeadSetup, err = words(n)
	case "worker_setup_commands":
		r.workerSetup, err = words(n)
	case "head_node", "worker_nodes":
		if !void(n) {
			err = fmt.Errorf("line %d: %s is of an early Ray; use available_node_types", at.Line, key)
		}
	default:
		err = fmt.Errorf("line %d: %q is no field of Ray's cluster file that golaunch knows", at.Line, key)
	}
	return err
}

func minutes(n *yaml.Node) (time.Duration, error) {
	text, err := scalar(n, "a number of minutes")
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v < 1e6) {
		return 0, wrong(n, "a number of minutes")
	}
	return max(time.Second, time.Duration(v*float64(time.Minute))), nil
}

func (r *rayFile) auth(key string, at, n *yaml.Node) (err error) {
	switch key {
	case "ssh_user":
		r.User, err = word(n, "the name of a user")
	case "ssh_private_key":
		r.Key, err = scalar(n, "the file of a private key")
	case "ssh_public_key":
		_, err = scalar(n, "the file of a public key") // not used: ssh-keygen makes the public key from the private one
	case "ssh_proxy_command":
		if !void(n) {
			err = fmt.Errorf("line %d: ssh_proxy_command: put ProxyCommand into your ssh_config", at.Line)
		}
	default:
		err = unknown(at, "ssh_user", "ssh_private_key", "ssh_public_key")
	}
	return err
}

// RayName turns a name in Ray's form into one in golaunch's form: ray.worker_gpu becomes
// ray-worker-gpu.
func RayName(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(name))
}

// nodeType makes a kind from one entry of available_node_types.
func (r *rayFile) nodeType(name string, at, n *yaml.Node) error {
	k := Kind{Provider: r.cloud.kind, Words: slices.Clone(r.cloud.words), Tags: map[string]string{}}
	k.Name, k.Max, k.Idle, k.StartTimeout = RayName(name), r.maxWorkers, r.idle, defaultStartTimeout
	isHead := r.headType != nil && r.headType.Value == name
	if isHead {
		k.Max = 0
	}
	if slices.ContainsFunc(r.Kinds, func(other Kind) bool { return other.Name == k.Name }) {
		return fmt.Errorf("line %d: two node types are called %s", at.Line, k.Name)
	}
	var own []string
	var config *yaml.Node
	err := each(n, func(key string, at, n *yaml.Node) (err error) {
		switch key {
		case "node_config":
			config = n
		case "resources":
			err = r.resources(&k, n)
		case "min_workers":
			k.Min, err = number(n, maxNodes)
		case "max_workers":
			k.Max, err = number(n, maxNodes)
		case "worker_setup_commands":
			own, err = words(n)
		case "labels":
			k.Node.Labels, err = labels(n)
		case "docker":
			if !void(n) {
				r.note(at, "not served: commands run on the machine itself")
			}
		default:
			err = unknown(at, "node_config", "resources", "labels", "min_workers", "max_workers", "worker_setup_commands")
		}
		return err
	})
	if err != nil {
		return err
	}
	if !kindName.Get().MatchString(k.Name) {
		return wrong(at, "a name of letters, digits, dots, hyphens and underscores")
	}
	if config == nil {
		return fmt.Errorf("line %d: %s has no node_config", at.Line, name)
	}
	if k.Max = min(k.Max, r.maxWorkers); k.Min > k.Max {
		return fmt.Errorf("line %d: %s has min_workers %d, and may have %d workers", at.Line, name, k.Min, k.Max)
	}
	if err := r.cloud.config(r, &k, config); err != nil {
		return err
	}
	if strings.Contains(strings.ToLower(strings.Join(k.Words, " ")), "spot") {
		k.Agent = []string{"--spot-notice=" + k.Provider}
	}
	k.defaults()
	if own == nil {
		own = r.workerSetup
	}
	k.Setup = slices.Concat(r.initialize, r.Setup, own)
	r.Kinds = append(r.Kinds, k)
	return nil
}

// resources reads the CPUs, the GPUs and the memory of each node, by Ray's names.
func (r *rayFile) resources(k *Kind, n *yaml.Node) error {
	return each(n, func(key string, at, n *yaml.Node) (err error) {
		switch key {
		case "CPU":
			k.Node.CPUs, err = number(n, 1<<16)
		case "GPU":
			var gpus int
			gpus, err = number(n, 1024)
			for i := range gpus {
				k.Node.GPUs = append(k.Node.GPUs, placement.GPU{Index: i})
			}
		case "memory":
			k.Node.Memory, err = size(n)
		default:
			r.note(at, "no resource of golaunch's: give nodes labels")
		}
		return err
	})
}

// local makes the file for Ray's provider "local", which uses existing machines.
func (r *rayFile) local() (File, error) {
	k := Kind{Provider: "ssh", Agent: nil}
	k.Name, k.Idle, k.StartTimeout = "worker", r.idle, defaultStartTimeout
	if r.worker == nil {
		return File{}, fmt.Errorf("line %d: a local provider has worker_ips", r.provider.Line)
	}
	var err error
	if k.Words, err = words(r.worker); err != nil {
		return File{}, err
	}
	for i := range k.Words {
		if r.User != "" {
			k.Words[i] = r.User + "@" + k.Words[i]
		}
	}
	k.Max = len(k.Words)
	if r.maxWorkers >= 0 {
		k.Max = min(k.Max, r.maxWorkers)
	}
	k.Min = min(r.minWorkers, k.Max)
	if r.Head.Host != "" && r.User != "" {
		r.Head.Host = r.User + "@" + r.Head.Host
	}
	for _, set := range [][]string{r.initialize, r.Setup, r.workerSetup} {
		if len(set) > 0 {
			r.Notes = append(r.Notes, "setup commands and file_mounts do not reach hosts that are there already: prepare these yourself")
			break
		}
	}
	k.defaults()
	r.Kinds = append(r.Kinds, k)
	return r.File, nil
}
