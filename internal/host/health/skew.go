package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/hostlist"
)

// compared has the versions that should be alike, each with the problem if they are not.
var compared = []struct {
	name string
	Warnable
}{
	{GPUs, gpuSkew},
	{Driver, driverSkew},
	{Kernel, kernelSkew},
	{NCCL, ncclSkew},
	{Libfabric, libfabricSkew},
	{EFA, libfabricSkew},
	{Python, pythonSkew},
}

// Skew compares the nodes of a job: "31 nodes 570.86.10; n17 565.57.01". The most common version
// comes first, and only nodes with other versions are named. If only some nodes have a version, the
// version of the other nodes is "none".
func Skew(nodes map[string]Versions) (findings []Finding) {
	for _, c := range compared {
		having := map[string][]string{}
		for node, v := range nodes {
			text := cmp.Or(v[c.name], "none")
			having[text] = append(having[text], node)
		}
		if len(having) > 1 {
			findings = append(findings, c.find("%s: %s", c.name, divided(having)))
		}
	}
	return findings
}

// shownVersions bounds the text of a finding in a large cluster.
const shownVersions = 5

func divided(having map[string][]string) string {
	versions := slices.SortedFunc(maps.Keys(having), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(having[b]), len(having[a])), cmp.Compare(a, b))
	})
	var parts []string
	for i, version := range versions {
		nodes := having[version]
		switch {
		case i == shownVersions:
			return strings.Join(append(parts, fmt.Sprintf("and %d more", len(versions)-i)), "; ")
		case i == 0 && len(nodes) > 1:
			parts = append(parts, fmt.Sprintf("%d nodes %s", len(nodes), version))
		default:
			parts = append(parts, names(nodes)+" "+version)
		}
	}
	return strings.Join(parts, "; ")
}

// shownNames bounds the names of the nodes with a version, in bytes.
const shownNames = 200

func names(nodes []string) string {
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) // n9 before n10
	text := hostlist.Compress(nodes)
	if len(text) > shownNames {
		return fmt.Sprintf("%d others", len(nodes))
	}
	return text
}
