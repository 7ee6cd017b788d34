// Package diagnosis prints the findings of golaunch doctor.
package diagnosis

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// Machine is the doctor's JSON; docs/json.md is its contract.
type Machine struct {
	jsonout.Header
	Node     string            `json:"node"`
	Findings []Finding         `json:"findings"`
	Fine     []string          `json:"fine"`
	Skipped  []string          `json:"skipped"`
	Versions map[string]string `json:"versions"`
}

type Finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

func Diagnose(ctx context.Context, logDir string) (Machine, error) {
	name, err := os.Hostname()
	if err != nil {
		return Machine{}, fmt.Errorf("cannot name this machine: %w", err)
	}
	system := health.ThisMachine(logDir)
	system.Holds = proc.Holds
	facts := health.Collect(ctx, system)
	findings := health.Check(facts)
	summary := health.Summarize(facts, findings)
	d := Machine{
		Node: name, Versions: facts.Versions, Fine: summary.Fine, Skipped: summary.Skipped,
	}
	for _, f := range findings {
		w := f.Warnable
		d.Findings = append(d.Findings, Finding{w.Code, string(w.Severity), w.Title, f.Text, w.Remedy})
	}
	return d, nil
}

// Print prints for people: one or two lines for each finding, and one line for each other fact.
func (d Machine) Print(w io.Writer) error {
	var b strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%s: %s [%s]\n  found   %s\n  remedy  %s\n\n", f.Severity, f.Title, f.Code, f.Text, f.Remedy)
	}
	if len(d.Findings) == 0 {
		fmt.Fprintf(&b, "%s: nothing is wrong\n\n", d.Node)
	}
	fmt.Fprintf(&b, "fine         %s\n", strings.Join(d.Fine, ", "))
	if len(d.Skipped) > 0 {
		fmt.Fprintf(&b, "not checked  %s\n", strings.Join(d.Skipped, ", "))
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(d.Versions)) {
		versions = append(versions, name+" "+d.Versions[name])
	}
	fmt.Fprintf(&b, "versions     %s\n", strings.Join(versions, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}
