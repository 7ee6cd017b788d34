package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// fabricDiagnosis is the JSON of doctor --fabric; docs/json.md is its contract.
type (
	Fabric struct {
		jsonout.Header
		Kind     fabric.Kind   `json:"kind,omitempty"`
		Ill      bool          `json:"ill"`
		Nodes    []fabricNode  `json:"nodes"`
		Findings []Finding     `json:"findings"`
		Tests    int           `json:"tests"`
		Rounds   int           `json:"rounds"`
		Took     time.Duration `json:"took_seconds"`
	}
	fabricNode struct {
		Name    string   `json:"name"`
		State   string   `json:"state"`
		Code    string   `json:"code,omitempty"`
		Why     string   `json:"why,omitempty"`
		With    string   `json:"with,omitempty"`
		Inside  *figures `json:"inside,omitempty"`
		Between *figures `json:"between,omitempty"`
		NCCL    string   `json:"nccl,omitempty"`
		File    string   `json:"libnccl,omitempty"`
	}
	figures struct {
		Latency   time.Duration `json:"latency_seconds"`
		Bandwidth int64         `json:"bytes_per_second,omitempty"`
	}
)

func NewFabric(r fabric.Report) Fabric {
	d := Fabric{
		Kind: r.Kind, Ill: r.Ill, Tests: r.Tests, Rounds: r.Rounds, Took: r.Took,
	}
	for _, n := range r.Nodes {
		d.Nodes = append(d.Nodes, fabricNode{
			n.Name, string(n.State), n.Code, n.Why, n.With, newFigures(n.Inside), newFigures(n.Between), n.Library, n.File,
		})
	}
	for _, f := range r.Findings() {
		w := f.Warnable
		d.Findings = append(d.Findings, Finding{w.Code, string(w.Severity), w.Title, f.Where(), w.Remedy})
	}
	return d
}

func newFigures(f fabric.Figures) *figures {
	if f == (fabric.Figures{}) {
		return nil
	}
	return &figures{f.Latency, int64(f.Bandwidth * gigabyte)}
}

// gigabyte is a GB/s, in bytes per second.
const gigabyte = 1e9

// PrintFabric prints for people: the problems, and a line for each node.
func PrintFabric(w io.Writer, r fabric.Report) error {
	if !r.Led {
		what := "no fault was found"
		if r.Ill {
			what = "a fault was found"
		}
		_, err := fmt.Fprintf(w, "%s: rank 0's node has the report\n", what)
		return err
	}
	var b strings.Builder
	for _, f := range r.Findings() {
		fmt.Fprintf(&b, "%s: %s [%s]\n  found   %s\n  remedy  %s\n\n", f.Warnable.Severity, f.Warnable.Title, f.Warnable.Code, f.Where(), f.Warnable.Remedy)
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tINSIDE\tBETWEEN\tWITH\tNCCL")
	for _, n := range r.Nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.State, shown(n.Inside), shown(n.Between), cmp.Or(n.With, "-"), cmp.Or(n.Library, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nover %s: nodes %d, tests %d, rounds %d, took %v\n",
		strings.ToUpper(string(r.Kind)), len(r.Nodes), r.Tests, r.Rounds, r.Took.Round(time.Millisecond))
	_, err := io.WriteString(w, b.String())
	return err
}

func shown(f fabric.Figures) string {
	latency := f.Latency.Round(100 * time.Nanosecond).String()
	switch {
	case f == fabric.Figures{}:
		return "-"
	case f.Bandwidth == 0:
		return latency
	}
	return fmt.Sprintf("%.3g GB/s, %s", f.Bandwidth, latency)
}
