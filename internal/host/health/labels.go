package health

import "strings"

// A node tells other nodes about itself in labels. A label's name is one of these prefixes,
// followed by a code or the name of a version.
const (
	findingPrefix = "health."
	versionPrefix = "version."
)

// maxLabel bounds a label in bytes: a node with many devices may have as many findings of one code.
const maxLabel = 1 << 10

// Labels returns findings and versions as labels of a node. Findings with the same code share a
// label.
func Labels(findings []Finding, versions Versions) map[string]string {
	labels := map[string]string{}
	for _, f := range findings {
		key := findingPrefix + f.Warnable.Code
		if before, more := labels[key]; more {
			labels[key] = before + ", " + f.Text
		} else {
			labels[key] = f.Text
		}
	}
	for name, text := range versions {
		labels[versionPrefix+name] = text
	}
	for key, text := range labels {
		if len(text) > maxLabel {
			labels[key] = strings.ToValidUTF8(text[:maxLabel-3], "") + "..."
		}
	}
	return labels
}

// FromLabels is the inverse of [Labels] for the codes that this golaunch knows; errors come first.
func FromLabels(labels map[string]string) (findings []Finding, versions Versions) {
	for _, w := range Table {
		if text, found := labels[findingPrefix+w.Code]; found {
			findings = append(findings, Finding{Warnable: w, Text: text})
		}
	}
	versions = Versions{}
	for key, text := range labels {
		if name, found := strings.CutPrefix(key, versionPrefix); found {
			versions[name] = text
		}
	}
	Worst(findings)
	return findings, versions
}

// Gather merges equal findings of several nodes: "n1", "n2" and "n3" become "n[1-3]". It sorts by
// severity, then by node as given.
func Gather(nodes []string, of map[string][]Finding) (all []Finding) {
	having := map[Finding][]string{}
	for _, node := range nodes {
		for _, f := range of[node] {
			f.Node = ""
			if having[f] == nil {
				all = append(all, f)
			}
			having[f] = append(having[f], node)
		}
	}
	for i, f := range all {
		all[i].Node = names(having[f])
	}
	Worst(all)
	return all
}
