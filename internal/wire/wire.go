// Package wire is the language of agents, clients and coordinators. It has their messages as Go
// values, converts these to and from rendezvouspb, and has the bounds and limits that hold on both
// sides. The entries of a coordinator's log contain the same messages.
package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Protocol changes when an older agent or coordinator could misunderstand a newer one.
const Protocol = 6

// RenamesLabel is the label of a job's node that joins under another name if its own name is taken.
// Its value says whether the node always does so, or only if the node with its name has another
// address.
const (
	RenamesLabel     = "renames"
	RenamesAlways    = "always"
	RenamesElsewhere = "elsewhere"
)

// Different names the first fact that differs between the two sides. An agent without facts may
// join any job.
func Different(coordinator, agent map[string]string) string {
	return DifferentAt("here", coordinator, agent)
}

// DifferentAt does what Different does; where says in its text which process has the facts agent.
func DifferentAt(where string, coordinator, agent map[string]string) string {
	if len(agent) == 0 {
		return ""
	}
	all := maps.Clone(agent)
	maps.Copy(all, coordinator)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a, b := agent[name], coordinator[name]; a != b {
			return fmt.Sprintf("%s differs: %s %s, %s on the coordinator", name, cmp.Or(a, "unset"), where, cmp.Or(b, "unset"))
		}
	}
	return ""
}

// ValidName reports whether a node or a job may have this name. A name is harmless in paths,
// terminals and environment variables: it has at most MaxName letters, digits, '.', '_' and '-', and
// does not begin with '.' or '-'.
func ValidName(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_", r))
	}
	return s != "" && len(s) <= MaxName && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, odd)
}
