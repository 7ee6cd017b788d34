// Package listing prints the nodes and jobs of a cluster.
package listing

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/report"
)

// status --json and jobs --json print these; docs/json.md is their contract.
type (
	Cluster struct {
		jsonout.Header
		Version string    `json:"version"`
		Since   time.Time `json:"since"`
		// Coordinators is empty unless the cluster has several.
		Coordinators []Coordinator `json:"coordinators"`
		// Requested and Blocked are as in a report.Status.
		Requested []report.RequestedNodes `json:"requested"`
		Blocked   string                  `json:"blocked,omitempty"`
		Nodes     []Node                  `json:"nodes"`
		Jobs      []Job                   `json:"jobs"`
	}
	Jobs struct {
		jsonout.Header
		Jobs []Job `json:"jobs"`
	}
	Coordinator struct {
		Address string `json:"address"`
		State   string `json:"state"`
	}
	Node struct {
		report.NodeStatus
		State report.NodeState `json:"state"`
		GPUs  int              `json:"gpus"`
		Used  int              `json:"gpus_used"`
	}
	Job struct {
		report.JobStatus
		// RAS is the answer of the job's NCCL, if it was asked.
		RAS *report.RAS `json:"ras,omitempty"`
		// Progress, Stragglers and Processes are set only for a job that was named, while it runs.
		Progress   *Progress   `json:"progress,omitempty"`
		Stragglers []Straggler `json:"stragglers"`
		Processes  []Process   `json:"processes"`
	}
)

// NewCoordinators lists the coordinators of a cluster that has several. The first leads.
func NewCoordinators(all, silent []string) (shown []Coordinator) {
	for i, at := range all {
		c := Coordinator{at, "follows"}
		switch {
		case i == 0:
			c.State = "leads"
		case slices.Contains(silent, at):
			c.State = "silent"
		}
		shown = append(shown, c)
	}
	return shown
}

// NewNode returns a node with the values that follow from its status.
func NewNode(n report.NodeStatus) Node { return Node{n, n.State(), len(n.GPUs), n.GPUsUsed()} }

func (s Cluster) Write(w io.Writer, nodes bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Coordinators) > 0 {
		fmt.Fprintln(t, "COORDINATOR\tSTATE")
		for _, c := range s.Coordinators {
			fmt.Fprintf(t, "%s\t%s\n", c.Address, c.State)
		}
		fmt.Fprintln(t)
	}
	if nodes {
		fmt.Fprintln(t, "NODE\tADDRESS\tSTATE\tGPUS\tUSED\tJOBS")
		for _, row := range s.nodeRows() {
			fmt.Fprint(t, row)
		}
		if len(s.Jobs) > 0 {
			fmt.Fprintln(t)
		}
	}
	if !nodes || len(s.Jobs) > 0 {
		fmt.Fprintln(t, "JOB\tPHASE\tRANKS\tGPUS\tAGE\tCOMMAND\tWAITS FOR")
	}
	for _, j := range s.Jobs {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.Phase, j.Ranks, j.GPUs, age(j), short(j.Title, 40), j.Waits)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.writeRequested(w); err != nil {
		return err
	}
	if err := s.writeExcluded(w); err != nil {
		return err
	}
	return s.writeGoodput(w)
}

// writeRequested writes a line for the nodes that were requested together, and a line for the job
// for which no nodes can be requested.
func (s Cluster) writeRequested(w io.Writer) error {
	var b strings.Builder
	for _, r := range s.Requested {
		fmt.Fprintf(&b, "waiting for %d x %s, requested %s", r.Nodes, r.Kind, r.Since.Local().Format("15:04"))
		if r.State != "" {
			fmt.Fprintf(&b, " (%s)", r.State)
		}
		b.WriteByte('\n')
	}
	if s.Blocked != "" {
		b.WriteString(s.Blocked + "\n")
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+b.String())
	return err
}

// writeExcluded writes a line for each excluded node.
func (s Cluster) writeExcluded(w io.Writer) error {
	var b strings.Builder
	for _, n := range s.Nodes {
		for i, x := range n.Excluded {
			if i == 0 {
				fmt.Fprintf(&b, "\n%s is passed over", n.Name)
			} else {
				b.WriteByte(',')
			}
			by := "job " + x.Job
			if x.Job == "" {
				by = "new jobs"
			}
			fmt.Fprintf(&b, " by %s until %s (%s)", by, x.Until.Local().Format(time.TimeOnly), x.Why)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGoodput writes a line for each job with notable goodput, and lines for its checkpoints, its
// workspace, its progress, its stragglers and the answer of its NCCL.
func (s Cluster) writeGoodput(w io.Writer) error {
	var b strings.Builder
	for _, j := range s.Jobs {
		if j.Goodput.Notable() {
			fmt.Fprintf(&b, "\ngoodput of %s: %v", j.ID, j.Goodput)
		}
		if j.Saves != nil && j.Finished.IsZero() {
			fmt.Fprintf(&b, "\n%s: %s", j.ID, j.Saves.Text(time.Now()))
		}
		if j.Workspace != nil {
			fmt.Fprintf(&b, "\n%s runs in workspace %s", j.ID, workspace.Text(*j.Workspace))
		}
		if j.Progress != nil {
			fmt.Fprintf(&b, "\n%s: %v", j.ID, j.Progress)
		}
		for _, slow := range j.Stragglers {
			b.WriteString("\nslow: " + slow.Text)
		}
		if j.RAS != nil {
			fmt.Fprintf(&b, "\nras: %v", j.RAS)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (n Node) holders() string {
	if len(n.Holds) == 0 {
		return "-"
	}
	var jobs []string
	for _, h := range n.Holds {
		jobs = append(jobs, h.Job)
	}
	return strings.Join(jobs, ",")
}

// age is the time since a job was submitted.
func age(j Job) string { return time.Since(j.Submitted).Round(time.Second).String() }

// short shortens a text for a table, and quotes characters that would break a row.
func short(text string, n int) string {
	if strings.ContainsAny(text, "\t\n") {
		text = strconv.Quote(text)
	}
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
