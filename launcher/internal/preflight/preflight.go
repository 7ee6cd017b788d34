// Package preflight checks this machine before it becomes a node, and writes its findings into the
// node's labels.
package preflight

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// The policies: what to do about a node with findings.
const (
	Off     = "off"
	Warn    = "warn"
	Exclude = "exclude"
	Fail    = "fail"
)

// Check returns an error for a text that is none of these policies.
func Check(policy string) error {
	if !slices.Contains([]string{Off, Warn, Exclude, Fail}, policy) {
		return usage.Errorf("preflight %q: off, warn, exclude or fail", policy)
	}
	return nil
}

// Examine labels the node with what it finds. If gpus is true, it also checks devices, which are
// all devices that the driver shows.
func Examine(
	ctx context.Context, policy string, node *placement.Node, gpus bool, devices []gpu.Device, system health.System,
) []health.Finding {
	if policy == Off {
		return nil
	}
	system.GPUs = nil
	if gpus {
		system.GPUs = func(context.Context) ([]gpu.Device, string, error) { return devices, "", nil }
	}
	facts := health.Collect(ctx, system)
	findings := health.Check(facts)
	labels := health.Labels(findings, facts.Versions)
	if bad := health.Errors(findings); len(bad) > 0 && policy != Warn {
		labels[placement.UnfitLabel] = codes(bad)
	}
	maps.Copy(labels, node.Labels)
	node.Labels = labels
	return findings
}

// codes lists each code once, in the order of the findings.
func codes(findings []health.Finding) string {
	var list []string
	for _, f := range findings {
		if !slices.Contains(list, f.Warnable.Code) {
			list = append(list, f.Warnable.Code)
		}
	}
	return strings.Join(list, ", ")
}
