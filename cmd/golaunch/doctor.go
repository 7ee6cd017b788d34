package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/internal/fabric"
	"github.com/golaunch/golaunch/internal/health"
)

// exitIll is the code of a doctor who has found an error.
const exitIll = 1

type doctorOptions struct {
	json   bool
	logDir string
	fabric bool
}

func newDoctorFlags(o *doctorOptions) *pflag.FlagSet {
	f := newVerbFlags("doctor")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.logDir, "log-dir", "", "look at the disk of this `directory` too")
	declareFabric(f, &o.fabric, &fabric.Options{})
	return f
}

// diagnosis is the doctor's JSON; docs/json.md is its contract.
type diagnosis struct {
	Node     string            `json:"node"`
	Findings []finding         `json:"findings"`
	Fine     []string          `json:"fine"`
	Skipped  []string          `json:"skipped"`
	Versions map[string]string `json:"versions"`
}

type finding struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

// doctor says what is wrong with this machine, or between the nodes of a job.
func doctor(io *streams, args []string) (int, error) {
	if slices.Contains(args, "--fabric") {
		return doctorFabric(io, args)
	}
	var o doctorOptions
	f := newDoctorFlags(&o)
	if err := parseVerb(f, args, 0, 0); err != nil {
		return helpOr(io, f, err)
	}
	if o.fabric { // GOLAUNCH_FABRIC
		return doctorFabric(io, args)
	}
	d, err := diagnose(context.Background(), o.logDir)
	if err != nil {
		return 0, err
	}
	if o.json {
		err = writeJSON(io.stdout, d)
	} else {
		err = d.print(io.stdout)
	}
	if slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Severity == string(health.Error) }) {
		return exitIll, err
	}
	return 0, err
}

func diagnose(ctx context.Context, logDir string) (diagnosis, error) {
	name, err := os.Hostname()
	if err != nil {
		return diagnosis{}, fmt.Errorf("cannot name this machine: %w", err)
	}
	facts := health.Collect(ctx, health.Here(logDir))
	findings := health.Check(facts)
	summary := health.Summarize(facts, findings)
	d := diagnosis{
		Node: name, Findings: []finding{}, Versions: facts.Versions,
		Fine: append([]string{}, summary.Fine...), Skipped: append([]string{}, summary.Skipped...),
	}
	for _, f := range findings {
		w := f.Warnable
		d.Findings = append(d.Findings, finding{w.Code, string(w.Severity), w.Title, f.Text, w.Remedy})
	}
	return d, nil
}

// print is for people: a line or two for each finding, and one for each of the rest.
func (d diagnosis) print(w io.Writer) error {
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
