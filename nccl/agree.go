package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// Label is the label by which a node tells others of its network: its [Agreement] with itself.
const Label = "golaunch.network"

// Agreement is what the nodes of a job have in common, in a few words whatever their number.
type Agreement struct {
	// Fabric is the one that all nodes have; TCP when they do not have the same.
	Fabric Fabric
	// RDMA says that a node has devices that NCCL must not use when the fabric is TCP.
	RDMA bool
	// Libfabric and Plugin are the oldest versions that are known; empty where none is.
	Libfabric, Plugin string
}

// Own is the agreement of a node with itself.
func (f Facts) Own() Agreement {
	return Agreement{
		Fabric: f.Fabric, RDMA: len(f.Devices) > 0, Libfabric: release(f.Versions.Libfabric), Plugin: release(f.Versions.Plugin),
	}
}

// release leaves the numbers of a version, which is all that others need to know.
func release(v string) string {
	rest := strings.TrimLeft(v, "0123456789.")
	return strings.Trim(v[:len(v)-len(rest)], ".")
}

// String is one line of at most 100 bytes, "efa rdma libfabric=1.22.0 plugin=1.13.2"; [ParseAgreement] reads it.
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

// ParseAgreement is false for a text that is none. Words that it does not know say nothing.
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

// Agree comes to what the nodes have in common, by their labels, as text for [ParseAgreement]; it is empty when none has one. One
// node that lacks the fabric of the others makes it TCP for all, as NCCL cannot mix fabrics; why then names the nodes that differ.
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

// differing names the nodes of each fabric but the most frequent one.
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
