// Package fabric checks how the nodes of a job communicate: inside each node and between pairs of them, in the rounds of
// [pairtests.Contest], until each is proven good or the bad one is named.
//
// It runs as a job's ranks: the golaunch command, with a verb that its help does not show, is one. Local rank 0 of each node tests for its node, and rank 0 leads the rounds too; they meet at the job's store. With GPUs
// a test is an all-reduce over NCCL, with a short-lived process for each GPU, since a wedged library cannot be cancelled; without, it
// is TCP between the addresses of the nodes. What [Read] makes of their standard output is the report.
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

// Options are what a user can say of the check.
type Options struct {
	// Library is the libnccl to load; when empty that of the active Python environment, or else the loader's choice.
	Library string
	// Limit bounds each test; 2 s for TCP and 20 s for NCCL when 0. CUDA and NCCL take seconds to begin with eight GPUs.
	Limit time.Duration
	// Simulated says that all nodes are one machine: their figures tell nothing of each other.
	Simulated bool
}

// Command is the command of the job's ranks, for whichever place the agent's executable, which has to be golaunch, has on a node.
func Command(o Options) []string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return []string{"/proc/self/exe", internalverbs.Fabric, string(text)}
}

// Rank is the whole life of a rank, with the options that Command has as its argument.
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

// Kind is what a check is made of.
type Kind string

const (
	// NCCL is all-reduces over GPUs, and TCP is streams and round trips.
	NCCL Kind = "nccl"
	TCP  Kind = "tcp"
)

// Figures are what a test measured. Bandwidth is in GB/s: NCCL's bus bandwidth, or that of four TCP streams in the slower direction;
// 0 when it was not measured. Latency is that of an all-reduce of 8 bytes, or the median round trip of 8 bytes.
type Figures struct {
	Latency   time.Duration
	Bandwidth float64
}

// Node is what the check found of one node.
type Node struct {
	Name  string
	State pairtests.State
	// Code is of the [health.Warnable] that a node has which is not good; Why says what happened, and With which node.
	Code, Why, With string
	Inside, Between Figures
	// Library is the version of the libnccl that its ranks load, and File where that is.
	Library, File string
}

// Path is two nodes that fail together, though each works with others.
type Path struct{ A, B, Why string }

// Report is what the check found.
type Report struct {
	Kind  Kind
	Nodes []Node
	Paths []Path
	// Tests and Rounds are how many there were, and Took is how long, from the first order to the last result.
	Tests, Rounds int
	Took          time.Duration
	// Ill says that at least one finding is an error. It is all that there is where Led is false: another process of the job has the rest.
	Ill, Led bool
}

// message is a line of a rank's output.
type message struct {
	Node *Node   `json:",omitempty"`
	Path *Path   `json:",omitempty"`
	End  *Report `json:",omitempty"`
}

// ErrNoReport says that the ranks ended before they had a report.
var ErrNoReport = errors.New("the check of the fabric did not come to its end")

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

// write prints the report as [Read] wants it: in lines that no log cuts in two, whatever the number of nodes.
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
