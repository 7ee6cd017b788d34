package launcher

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestCompleteAgain checks that complete changes nothing in a complete job that was sent. Agents
// that ssh or srun started complete their job again, and all nodes must have the same job.
func TestCompleteAgain(t *testing.T) {
	for what, j := range map[string]Job{
		"defaults":   {},
		"no grace":   {Stopping: Stopping{Grace: -1}},
		"no waiting": {Resources: Resources{LastCall: -1, GrowAfter: -1}},
		"given": {
			Resources: Resources{MinNodes: 2, MaxNodes: 3, PerNode: []int{4}, GrowAfter: time.Hour},
			Health:    Health{ExcludeAfter: 1}, Restarts: Restarts{Max: 3, ExitCodes: map[report.Ending]int{"budget": 9}},
		},
	} {
		j.Command, j.Network.Scheduler = []string{"true"}, noScheduler
		first, err := j.complete()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		var there Job
		if err := json.Unmarshal(text, &there); err != nil {
			t.Fatal(err)
		}
		second, err := there.complete()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := first.facts(), second.facts(); !maps.Equal(a, b) {
			t.Errorf("%s: the facts are\n%v\nand then\n%v", what, a, b)
		}
		if first.Resources.LastCall != second.Resources.LastCall {
			t.Errorf("%s: the last call takes %v and then %v", what, first.Resources.LastCall, second.Resources.LastCall)
		}
	}
}
