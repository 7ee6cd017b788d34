package up

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/golaunch/golaunch/launcher/internal/capacityfile"
	"github.com/golaunch/golaunch/launcher/internal/provider"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// values returns the values of the cluster's file, one value on each line, with digests of the
// files that the file names and of this golaunch. Two files that differ only in their form have the
// same values.
func (c *Cluster) values() (string, error) {
	root, err := capacityfile.Tree(c.text)
	if err != nil {
		return "", usage.Errorf("%s: %w", c.path, err)
	}
	var lines []string
	flatten("", root, &lines)
	for _, f := range c.file.Files {
		sum, err := digest(expand(f.From))
		if err != nil {
			return "", usage.Errorf("%s: line %d: %w", c.path, f.Line, err)
		}
		lines = append(lines, fmt.Sprintf("contents of %s: %s", f.To, sum))
	}
	sum, err := digest(c.golaunch)
	if err != nil {
		return "", err
	}
	lines = append(lines, "golaunch: "+sum)
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", nil
}

// flatten adds a line for each value below a node of the YAML tree. The line has the value's path
// and the value.
func flatten(path string, n *yaml.Node, lines *[]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1], lines)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			flatten(fmt.Sprintf("%s[%d]", path, i), item, lines)
		}
	default:
		*lines = append(*lines, path+": "+strconv.Quote(n.Value))
	}
}

// digest returns a digest of a file or a directory. It does not depend on the times of files.
func digest(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	sum := sha256.New()
	a := provider.NewArchive(sum)
	a.Timeless = true
	a.Add("x", path)
	if err := a.Close(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// difference returns the lines that only one of two texts has, in the order of their paths.
func difference(was, now string) (all []string) {
	old, young := strings.Split(strings.TrimSpace(was), "\n"), strings.Split(strings.TrimSpace(now), "\n")
	has := func(lines []string) map[string]bool {
		all := map[string]bool{}
		for _, l := range lines {
			all[l] = true
		}
		return all
	}
	before, after := has(old), has(young)
	for _, l := range old {
		if !after[l] && l != "" {
			all = append(all, "- "+l)
		}
	}
	for _, l := range young {
		if !before[l] {
			all = append(all, "+ "+l)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return all
}

// rewritten returns the file for the coordinator on a head. In it, the paths of this machine's
// files are replaced by those at which deliver puts them, and each kind has the numbers of GPUs and
// CPUs of its nodes.
func (c *Cluster) rewritten(ctx context.Context, h *head, homeDir string) ([]byte, error) {
	root, err := capacityfile.Tree(c.text)
	if err != nil {
		return nil, err
	}
	dir := homeDir + "/" + c.dir()
	for _, name := range []string{"files", "file_mounts"} {
		if n := entry(root, name); n != nil && n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				n.Content[i+1].Value, n.Content[i+1].Tag = fmt.Sprintf("%s/files/%d", dir, i/2), "!!str"
			}
		}
	}
	for _, path := range [][2]string{{"ssh", "key"}, {"auth", "ssh_private_key"}} {
		if n := entry(entry(root, path[0]), path[1]); n != nil && c.file.Key != "" {
			if n.Value = dir + "/given_key"; h.ssh == nil {
				if n.Value, err = filepath.Abs(expand(c.file.Key)); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, k := range c.file.Kinds {
		if len(k.Node.GPUs) > 0 || k.Node.CPUs > 0 || !slices.Contains(capacityfile.Clouds, k.Provider) {
			continue
		}
		if err := c.shape(ctx, root, k); err != nil {
			return nil, usage.Errorf("%s: %s: cannot tell what its nodes bring: %w", c.path, k.Name, err)
		}
	}
	return yaml.Marshal(root)
}

// shape writes into a kind the numbers of GPUs and CPUs of its nodes, which the cloud provides.
func (c *Cluster) shape(ctx context.Context, root *yaml.Node, k capacityfile.Kind) error {
	p, err := c.provider(ctx, k)
	if err != nil {
		return err
	}
	ctx, cancel := limited(ctx, k)
	defer cancel()
	gpus, cpus, err := p.(*provider.Cloud).Shape(ctx)
	if err != nil {
		return err
	}
	n := entry(entry(root, "kinds"), k.Name)
	gpuName, cpuName := "gpus", "cpus"
	if types := entry(root, "available_node_types"); types != nil {
		gpuName, cpuName = "GPU", "CPU"
		for i := 0; i+1 < len(types.Content); i += 2 {
			if capacityfile.RayName(types.Content[i].Value) == k.Name {
				n = entry(types.Content[i+1], "resources")
				if n == nil {
					n = &yaml.Node{Kind: yaml.MappingNode}
					types.Content[i+1].Content = append(types.Content[i+1].Content, scalar("resources"), n)
				}
			}
		}
	}
	put(n, gpuName, strconv.Itoa(gpus))
	put(n, cpuName, strconv.Itoa(cpus))
	return nil
}

// put sets the value for a name in a YAML mapping.
func put(n *yaml.Node, name, value string) {
	if old := entry(n, name); old != nil {
		old.SetString(value)
		old.Tag = ""
		return
	}
	n.Style = 0
	n.Content = append(n.Content, scalar(name), scalar(value))
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// entry returns the value for a name in a YAML mapping; nil if there is none.
func entry(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
