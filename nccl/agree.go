package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// Label is the label of a node that describes its network to other nodes: the node's [Facts.Own].
const Label = "golaunch.network"

// Agreement is a short description of the common properties of the networks of a job's nodes.
type Agreement struct {
	// Fabric is the fabric that all nodes have, or TCP.
	Fabric Fabric
	// RDMA is true if a node has RDMA devices. NCCL must not use them when the fabric is TCP.
	RDMA bool
	// Libfabric and Plugin are the oldest known versions, or empty.
	Libfabric, Plugin string
}

// Own returns the agreement for a job with this node alone.
func (f Facts) Own() Agreement {
	return Agreement{
		Fabric: f.Fabric, RDMA: len(f.Devices) > 0, Libfabric: release(f.Versions.Libfabric), Plugin: release(f.Versions.Plugin),
	}
}

// release returns only the numbers of a version.
func release(v string) string {
	rest := strings.TrimLeft(v, "0123456789.")
	return strings.Trim(v[:len(v)-len(rest)], ".")
}

// String returns one line of at most 100 bytes for [ParseAgreement], such as "efa rdma
// libfabric=1.22.0 plugin=1.13.2".
func (a Agreement) String() string {
	words := []string{string(a.Fabric)}
	if a.RDMA {
		words = append(words, "rdma")
	}
	if a.Libfabric != "" {
		words = append(words, "libfabric="+a.Libfabric)
	}
	if a.Plugin != "" {
		words = append(words, "plugin="+a.Plugin)
	}
	return strings.Join(words, " ")
}

// ParseAgreement parses the text of String, and ignores unknown words. It returns false for another
// format.
func ParseAgreement(text string) (Agreement, bool) {
	words := strings.Fields(text)
	if len(words) == 0 || len(text) > 256 || !slices.Contains(fabrics, Fabric(words[0])) {
		return Agreement{}, false
	}
	a := Agreement{Fabric: Fabric(words[0])}
	for _, word := range words[1:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "rdma":
			a.RDMA = true
		case "libfabric":
			a.Libfabric = release(value)
		case "plugin":
			a.Plugin = release(value)
		}
	}
	return a, true
}

// Agree finds the common properties of the nodes, according to their labels, as text for
// [ParseAgreement]. agreed is empty if no node has a label. If a single node lacks the fabric of
// the others, the fabric is TCP for all, because NCCL cannot mix fabrics. In that case the result why
// names the nodes that differ.
func Agree(nodes []placement.Node) (agreed, why string) {
	var common Agreement
	having := map[Fabric][]string{}
	for _, n := range nodes {
		a, ok := ParseAgreement(n.Labels[Label])
		if !ok {
			continue
		}
		having[a.Fabric] = append(having[a.Fabric], n.Name)
		common = Agreement{
			Fabric: a.Fabric, RDMA: common.RDMA || a.RDMA,
			Libfabric: oldest(common.Libfabric, a.Libfabric), Plugin: oldest(common.Plugin, a.Plugin),
		}
	}
	switch len(having) {
	case 0:
		return "", ""
	case 1:
		return common.String(), ""
	}
	common.Fabric = TCP
	return common.String(), differing(having)
}

// differing names the nodes of each fabric except the most frequent one.
func differing(having map[Fabric][]string) string {
	most, all := TCP, 0
	for _, f := range fabrics {
		all += len(having[f])
		if len(having[f]) > len(having[most]) {
			most = f
		}
	}
	have := []string{fmt.Sprintf("%d of %d have %s", len(having[most]), all, most)}
	for _, f := range fabrics {
		if f != most && len(having[f]) > 0 {
			have = append(have, fmt.Sprintf("%s %s", few(having[f]), f))
		}
	}
	return "the nodes have no fabric in common, so that auto presets take tcp: " + strings.Join(have, ", ") + "; golaunch env says why on each"
}
