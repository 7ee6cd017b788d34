// Package fabric tests how the nodes of a job communicate: inside each node and between pairs of
// them, in the rounds of [pairtests.Contest], until each node is proven good or named bad.
//
// The test runs as a job. Each rank is golaunch with a hidden verb. Local rank 0 of each node tests
// for its node, and rank 0 also leads the rounds; they meet at the job's store. With GPUs a test is
// an all-reduce over NCCL, with a short-lived process for each GPU, since a call into a library
// that hangs cannot be cancelled. Without GPUs it is TCP between the nodes' addresses. [Read] makes
// the report from the ranks' output.
package fabric

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric/pairtests"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
)

// Options are the user's choices.
type Options struct {
	// Library is the libnccl to load. If empty, golaunch loads the libnccl of the active Python
	// environment, or else the libnccl that the dynamic loader finds.
	Library string
	// Limit bounds each test; if 0 it is 2 s for TCP and 20 s for NCCL. With eight GPUs, CUDA and
	// NCCL take seconds to start.
	Limit time.Duration
	// Simulated is true if all nodes are one machine, whose figures cannot be compared.
	Simulated bool
}

// Command is the command of the job's ranks. On each node it is the executable of the agent, which
// must be golaunch.
func Command(o Options) []string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return []string{"/proc/self/exe", internalverbs.Fabric, string(text)}
}

// Rank runs a rank, with the options in Command's argument.
func Rank(text string) error {
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = rank(o)
	}
	if err != nil {
		return fmt.Errorf("check of the fabric: %w", err)
	}
	return nil
}

// Kind is the way in which nodes are tested.
type Kind string

const (
	// NCCL is all-reduces over GPUs, and TCP is streams and round trips.
	NCCL Kind = "nccl"
	TCP  Kind = "tcp"
)

// Figures are measurements; 0 means not measured. Bandwidth is in GB/s: NCCL's bus bandwidth, or
// the bandwidth of four TCP streams in the slower direction. Latency is the latency of an
// all-reduce of 8 bytes, or the median round trip of 8 bytes.
type Figures struct {
	Latency   time.Duration
	Bandwidth float64
}

// Node is the result for one node.
type Node struct {
	Name  string
	State pairtests.State
	// Code is the code of a bad node's [health.Warnable]. Why describes the failure, and With names
	// the other node.
	Code, Why, With string
	Inside, Between Figures
	// Library is the version of the libnccl that the node's ranks load, and File its path.
	Library, File string
}

// Path is two nodes that fail together, although each works with others.
type Path struct{ A, B, Why string }

// Report is the result of the test.
type Report struct {
	Kind  Kind
	Nodes []Node
	Paths []Path
	// Tests and Rounds count the tests and rounds that were made. Took is the time from the first
	// order to the last result.
	Tests, Rounds int
	Took          time.Duration
	// Ill is true if at least one finding is an error. If Led is false, the report has only Ill:
	// another process of the job has the full report.
	Ill, Led bool
}

// message is a line of a rank's output.
type message struct {
	Node *Node   `json:",omitempty"`
	Path *Path   `json:",omitempty"`
	End  *Report `json:",omitempty"`
}

// ErrNoReport is the error if the ranks ended without a report.
var ErrNoReport = errors.New("the fabric test did not finish")

// Read reads the report from the output of the ranks.
func Read(output io.Reader) (Report, error) {
	var r Report
	ended := false
	for lines := json.NewDecoder(bufio.NewReader(output)); ; {
		var m message
		switch err := lines.Decode(&m); {
		case err == io.EOF && ended:
			return r, nil
		case err != nil:
			return r, fmt.Errorf("%w: %w", ErrNoReport, err)
		case m.Node != nil:
			r.Nodes = append(r.Nodes, *m.Node)
		case m.Path != nil:
			r.Paths = append(r.Paths, *m.Path)
		case m.End != nil && (m.End.Led || !ended):
			ended = true
			m.End.Nodes, m.End.Paths = r.Nodes, r.Paths
			r = *m.End
		}
	}
}

// write prints the report for [Read]. It keeps each line short, whatever the number of nodes, so
// that no log splits a line.
func (r Report) write(w io.Writer) error {
	out := json.NewEncoder(w)
	var errs []error
	for _, n := range r.Nodes {
		errs = append(errs, out.Encode(message{Node: &n}))
	}
	for _, p := range r.Paths {
		errs = append(errs, out.Encode(message{Path: &p}))
	}
	r.Nodes, r.Paths = nil, nil
	return cmp.Or(errors.Join(errs...), out.Encode(message{End: &r}))
}
