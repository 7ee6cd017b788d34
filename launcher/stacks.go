package launcher

import (
	"context"
	"io"
	"time"

	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// Stacks is where the ranks of a job are in their programs: one tree of the Python stacks of all
// their processes, in which ranks that are at the same place are one. As JSON it is what
// docs/json.md says.
type Stacks struct {
	tree stacks.Tree
	// Missing are the nodes that did not answer, each in a sentence.
	Missing []string
}

// Text writes the tree for a terminal of that many columns, the places of the fewest ranks first.
func (s Stacks) Text(w io.Writer, width int) error { return s.tree.Text(w, width) }

// MarshalJSON writes the tree.
func (s Stacks) MarshalJSON() ([]byte, error) {
	return jsonout.Marshal(struct {
		stacks.Tree
		Silent []string `json:"silent_nodes"`
	}{s.tree, s.Missing})
}

// Ranks is how many are in the tree, and Processes how many processes.
func (s Stacks) Ranks() (ranks, processes int) { return s.tree.Ranks.Len(), s.tree.Processes }

// Stacks looks into the processes of a job that runs, on all nodes at once and without stopping
// them, for as long as within allows.
func (c *Client) Stacks(ctx context.Context, job string, within time.Duration) (Stacks, error) {
	var all []stacks.Sample
	var s Stacks
	for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutStacks}}) {
		switch {
		case err != nil:
			return s, asked(err)
		case a.Missing != "":
			s.Missing = append(s.Missing, a.Missing)
			continue
		}
		sample, err := stacks.Decode(a.Facts)
		if err != nil {
			s.Missing = append(s.Missing, "node "+a.Node+": "+err.Error())
			continue
		}
		all = append(all, sample)
	}
	s.tree = stacks.Merge(all, stacks.MergeOptions{})
	return s, nil
}
