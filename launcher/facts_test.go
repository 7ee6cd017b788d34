package launcher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/placement"
)

// large returns a job with a command of 2 MB that ends with end, and an order of 12,500 nodes.
func large(end string) Job {
	j := Job{Command: []string{"true", strings.Repeat("x", 2<<20) + end}, Resources: Resources{MinNodes: 1, MaxNodes: 12_500}}
	j.Resources.Order.By = placement.ByList
	for i := range 12_500 {
		j.Resources.Order.List = append(j.Resources.Order.List, fmt.Sprintf("%0253d", i))
		j.Resources.PerNode = append(j.Resources.PerNode, 1+i%8)
	}
	return j
}

// TestFactsAreShort: the facts of a large job are short, and two jobs that differ have different
// facts.
func TestFactsAreShort(t *testing.T) {
	a, b := large("a").facts(), large("b").facts()
	size := 0
	for name, value := range a {
		size += len(name) + len(value)
		if name != "command" && value != b[name] {
			t.Errorf("%s differs: %s, %s", name, value, b[name])
		}
	}
	if size > 8<<10 {
		t.Errorf("%d bytes of facts", size)
	}
	if a["command"] == b["command"] {
		t.Error("two commands have one fact")
	}
}

// TestTaskHasNoLists: the task for an agent omits the job's lists of nodes, which only the
// coordinator uses.
func TestTaskHasNoLists(t *testing.T) {
	j := large("")
	j.Command = []string{"true"}
	s, err := j.remote()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Task) > 8<<10 {
		t.Errorf("a task of %d bytes", len(s.Task))
	}
	if r := s.Job.Request; len(r.Order.List) != 12_500 || len(r.PerNode) != 12_500 {
		t.Errorf("%d nodes and %d numbers are submitted", len(r.Order.List), len(r.PerNode))
	}
}
