// Package capacityfile reads the file of a cluster: which nodes it may ask for and, for golaunch up,
// where its coordinator runs and what its nodes need. It also reads the file of Ray's cluster
// launcher.
package capacityfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// Kind is a kind of node, with the provider that makes such nodes.
type Kind struct {
	capacity.Kind
	// Provider is one of Providers. Words are the arguments that the file gives to it.
	Provider string
	Words    []string
	// Agent has further flags of the kind's agents.
	Agent []string
	// Setup are commands that run on each of the kind's nodes, before the agent.
	Setup []string
	// Tags are further tags of the kind's machines in a cloud.
	Tags map[string]string
	// Limit bounds each call of the provider.
	Limit time.Duration
}

// File has the contents of a capacity file.
type File struct {
	Kinds []Kind
	// Max bounds the nodes of all kinds together; 0 means no bound.
	Max int
	// Limits are the GPUs that users may hold, by user and priority.
	Limits map[string]map[string]int
	Cluster
	// Notes name the parts of the file that have no effect, each with its line.
	Notes []string
}

// Providers are the providers that a kind may name.
var Providers = []string{"aws", "azure", "exec", "gcp", "kubernetes", "slurm", "ssh"}

// Clouds are the providers whose machines start without golaunch, which must be installed on them.
var Clouds = []string{"aws", "azure", "gcp"}

// firstWord names the first word that a provider must have.
var firstWord = map[string]string{
	"aws": "options of aws ec2 run-instances", "azure": "options of az vm create", "gcp": "options of gcloud compute instances create",
	"exec": "a command and its arguments", "kubernetes": "the file of a pod, and options of kubectl", "ssh": "hosts",
}

// Bounds of a file. maxValues also counts the values that aliases repeat, since a short file could
// stand for a very long one.
const (
	maxFile   = 256 << 10
	maxValues = 20_000
	maxKinds  = 64
	maxNodes  = 10_000
	maxUsers  = 1000
	maxGPUs   = maxNodes * 1024
)

// Defaults of a kind.
const (
	defaultIdle         = 10 * time.Minute
	defaultStartTimeout = 30 * time.Minute
	defaultLimit        = time.Minute
	cloudLimit          = 5 * time.Minute
)

// Read reads a file. An error names the file, the line and what to do.
func Read(path string) (File, error) {
	text, err := Text(path)
	if err != nil {
		return File{}, err
	}
	file, err := Parse(text)
	if err != nil {
		return File{}, usage.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// describes says which file is wanted.
const describes = "; name a YAML file with the kinds of nodes (docs/capacity.md)"

// Text reads the text of a file, which must not be too long.
func Text(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage.Errorf("cannot read the cluster's file: %w%s", err, describes)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, usage.Errorf("cannot read the cluster's file: %w%s", err, describes)
	}
	if len(text) > maxFile {
		return nil, usage.Errorf("%s has more than %d KiB", path, maxFile>>10)
	}
	return text, nil
}

// Parse reads the text of a file.
func Parse(text []byte) (File, error) {
	root, err := Tree(text)
	if err != nil {
		return File{}, err
	}
	parse := parseFile
	if isRay(root) {
		parse = parseRay
	}
	file, err := parse(root)
	switch {
	case err != nil:
		return File{}, err
	case len(file.Kinds) == 0 && len(file.Limits) == 0:
		return File{}, errors.New("it names no kinds of nodes, and limits no users")
	case len(file.Limits) > maxUsers:
		return File{}, fmt.Errorf("it limits %d users, %d at most", len(file.Limits), maxUsers)
	case len(file.Kinds) > maxKinds:
		return File{}, fmt.Errorf("it names %d kinds of nodes, %d at most", len(file.Kinds), maxKinds)
	}
	return file, file.check()
}

// Tree returns the only YAML value of a file, with aliases replaced by their values.
func Tree(text []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return nil, errors.New("it is empty; want kinds:")
	}
	if err == nil {
		if err = d.Decode(&more); err == nil {
			return nil, fmt.Errorf("line %d: a second document begins here; want one", more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	left := maxValues
	return expand(doc.Content[0], &left)
}

// expand replaces aliases by copies of the values that they stand for.
func expand(n *yaml.Node, left *int) (*yaml.Node, error) {
	if *left--; *left < 0 {
		return nil, fmt.Errorf("line %d: with what aliases stand for, it has more than %d values", n.Line, maxValues)
	}
	if n.Kind == yaml.AliasNode {
		return expand(n.Alias, left)
	}
	out := *n
	out.Anchor, out.Content = "", nil
	for _, c := range n.Content {
		c, err := expand(c, left)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, c)
	}
	return &out, nil
}

// limits reads a mapping from users to the number of GPUs that they may hold at each priority.
func limits(n *yaml.Node) (map[string]map[string]int, error) {
	all := map[string]map[string]int{}
	err := each(n, func(user string, at, n *yaml.Node) error {
		if user == "" || len(user) > wire.MaxUser {
			return fmt.Errorf("line %d: %q is no user; give a name of 1 to %d bytes, a uid, or %s for all others", at.Line, user, wire.MaxUser, cluster.AnyUser)
		}
		all[user] = map[string]int{}
		return each(n, func(name string, at, n *yaml.Node) (err error) {
			if !slices.Contains(cluster.Priorities, cluster.Priority(name)) {
				return unknown(at, string(cluster.Production), string(cluster.Interactive), string(cluster.Batch))
			}
			all[user][name], err = number(n, maxGPUs)
			return err
		})
	})
	return all, err
}

func parseFile(root *yaml.Node) (f File, err error) {
	err = each(root, func(key string, at, n *yaml.Node) (err error) {
		switch key {
		case "kinds":
		case "limits":
			f.Limits, err = limits(n)
			return err
		case "max":
			if f.Max, err = number(n, maxNodes); err == nil && f.Max == 0 {
				err = wrong(n, "the number of nodes that there may be of all kinds, 1 at least")
			}
			return err
		default:
			return f.set(key, at, n)
		}
		return each(n, func(name string, at, n *yaml.Node) error {
			k, err := parseKind(name, at, n)
			f.Kinds = append(f.Kinds, k)
			return err
		})
	})
	for i := range f.Kinds {
		f.Kinds[i].Setup = append(slices.Clone(f.Setup), f.Kinds[i].Setup...)
	}
	return f, err
}

// each calls f for each entry of a mapping.
func each(n *yaml.Node, f func(key string, at, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return wrong(n, "names with values")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, value := n.Content[i], n.Content[i+1]
		if at.Kind != yaml.ScalarNode {
			return wrong(at, "a name")
		}
		if seen[at.Value] {
			return fmt.Errorf("line %d: %s is there twice", at.Line, at.Value)
		}
		seen[at.Value] = true
		if err := f(at.Value, at, value); err != nil {
			return err
		}
	}
	return nil
}

// wrong returns an error that says what the file must have at this place.
func wrong(n *yaml.Node, want string) error {
	switch n.Kind {
	case yaml.ScalarNode:
		return fmt.Errorf("line %d: %q: want %s", n.Line, n.Value, want)
	case yaml.MappingNode:
		return fmt.Errorf("line %d: names with values are here: want %s", n.Line, want)
	default:
		return fmt.Errorf("line %d: a list is here: want %s", n.Line, want)
	}
}

func unknown(at *yaml.Node, known ...string) error {
	return fmt.Errorf("line %d: %q is not known; want %s", at.Line, at.Value, strings.Join(known, ", "))
}

// kindName is the beginning of a DNS label.
var kindName = lazyregexp.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func parseKind(name string, at, n *yaml.Node) (Kind, error) {
	k := Kind{Kind: capacity.Kind{Name: name, Max: -1, Idle: defaultIdle, StartTimeout: defaultStartTimeout}}
	if !kindName.Get().MatchString(name) || len(name) > capacity.MaxKind {
		return k, fmt.Errorf("line %d: %q is no name of a kind; use small letters, digits and hyphens, %d at most", at.Line, name, capacity.MaxKind)
	}
	if err := each(n, k.set); err != nil {
		return k, err
	}
	k.defaults()
	switch {
	case k.Provider == "":
		return k, fmt.Errorf("line %d: %s has no provider; give it one of %s", at.Line, name, strings.Join(Providers, ", "))
	case k.Max < 0:
		return k, fmt.Errorf("line %d: %s has no max, the number of nodes that there may be", at.Line, name)
	case k.Min > k.Max:
		return k, fmt.Errorf("line %d: %s has a min of %d, and a max of %d", at.Line, name, k.Min, k.Max)
	}
	return k, nil
}

// defaults sets the defaults that depend on the provider.
func (k *Kind) defaults() {
	if k.Limit == 0 {
		k.Limit = defaultLimit
		if slices.Contains(Clouds, k.Provider) {
			k.Limit = cloudLimit
		}
	}
}

// set sets a field of a kind.
func (k *Kind) set(key string, at, n *yaml.Node) (err error) {
	switch key {
	case "gpus":
		var gpus int
		gpus, err = number(n, 1024)
		for i := range gpus {
			k.Node.GPUs = append(k.Node.GPUs, placement.GPU{Index: i})
		}
	case "cpus":
		k.Node.CPUs, err = number(n, 1<<16)
	case "memory":
		k.Node.Memory, err = size(n)
	case "labels":
		k.Node.Labels, err = labels(n)
	case "min":
		k.Min, err = number(n, maxNodes)
	case "max":
		k.Max, err = number(n, maxNodes)
	case "priority":
		k.Priority, err = number(n, 1000)
	case "cost":
		var text string
		if text, err = scalar(n, "a price"); err == nil {
			if k.Cost, err = strconv.ParseFloat(text, 64); err != nil || !(k.Cost >= 0 && k.Cost < 1e9) {
				err = wrong(n, "a price per hour")
			}
		}
	case "idle":
		k.Idle, err = duration(n)
	case "start_timeout":
		k.StartTimeout, err = duration(n)
	case "agent":
		k.Agent, err = words(n)
	case "call_timeout":
		k.Limit, err = duration(n)
	case "setup":
		k.Setup, err = words(n)
	case "tags":
		k.Tags, err = texts(n)
	default:
		if !slices.Contains(Providers, key) {
			return unknown(at, append([]string{"gpus", "cpus", "memory", "labels", "min", "max", "priority", "cost", "idle", "start_timeout", "call_timeout", "agent", "setup", "tags"}, Providers...)...)
		}
		if k.Provider != "" {
			return fmt.Errorf("line %d: %s has a provider already: %s", at.Line, k.Name, k.Provider)
		}
		k.Provider = key
		k.Words, err = words(n)
		if want := firstWord[key]; err == nil && want != "" && (len(k.Words) == 0 || k.Words[0] == "") {
			err = wrong(n, want)
		}
	}
	return err
}

// labelName and labelValue ensure that an agent's --label has only one label.
var (
	labelName  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	labelValue = lazyregexp.New(`^[^="[:cntrl:]]*$`)
)

func labels(n *yaml.Node) (map[string]string, error) {
	all := map[string]string{}
	err := each(n, func(name string, at, n *yaml.Node) error {
		switch text, err := scalar(n, "a text"); {
		case err != nil:
			return err
		case name == capacity.TagLabel:
			return fmt.Errorf("line %d: golaunch sets the label %s itself", at.Line, name)
		case !labelName.Get().MatchString(name):
			return fmt.Errorf("line %d: %q is no name of a label; use letters, digits, dots, dashes, underscores and slashes", at.Line, name)
		case !labelValue.Get().MatchString(text):
			return wrong(n, "a text without equals signs, quotes and control characters")
		default:
			all[name] = text
			return nil
		}
	})
	return all, err
}

// texts reads a mapping from names to texts.
func texts(n *yaml.Node) (map[string]string, error) {
	all := map[string]string{}
	err := each(n, func(name string, at, n *yaml.Node) (err error) {
		all[name], err = scalar(n, "a text")
		return err
	})
	return all, err
}

func scalar(n *yaml.Node, want string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", wrong(n, want)
	}
	return n.Value, nil
}

func number(n *yaml.Node, most int) (int, error) {
	want := fmt.Sprintf("a number from 0 to %d", most)
	text, err := scalar(n, want)
	if err != nil {
		return 0, err
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 0 || v > most {
		return 0, wrong(n, want)
	}
	return v, nil
}

func duration(n *yaml.Node) (time.Duration, error) {
	const want = "a time of at least 1s, such as 90s, 10m or 2h"
	text, err := scalar(n, want)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, wrong(n, want)
	}
	return d, nil
}

// units of memory.
var units = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

func size(n *yaml.Node) (int64, error) {
	const want = "an amount of memory, such as 512GiB"
	text, err := scalar(n, want)
	if err != nil {
		return 0, err
	}
	digits := strings.TrimRight(text, "KMGTiB")
	v, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	unit, known := units[text[len(digits):]]
	if err != nil || !known || v < 0 || v > (1<<60)/unit {
		return 0, wrong(n, want)
	}
	return v * unit, nil
}

// words reads a list of words, or one word.
func words(n *yaml.Node) ([]string, error) {
	const want = "a list of words"
	if n.Kind != yaml.SequenceNode {
		if n.Tag == "!!null" {
			return nil, nil
		}
		text, err := scalar(n, want)
		return []string{text}, err
	}
	var all []string
	for _, n := range n.Content {
		text, err := scalar(n, "a word")
		if err != nil {
			return nil, err
		}
		if strings.ContainsRune(text, 0) {
			return nil, wrong(n, "a word without a NUL")
		}
		all = append(all, text)
	}
	return all, nil
}
