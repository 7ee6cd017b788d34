package launcher_test

import (
	"context"
	"fmt"

	"github.com/golaunch/golaunch/launcher"
)

func ExampleRun() {
	result, err := launcher.Run(context.Background(), launcher.Job{
		Command:   []string{"sh", "-c", "[ $WORLD_SIZE = 4 ] && [ $GOLAUNCH_ATTEMPT = 1 ]"},
		Resources: launcher.Resources{PerNode: []int{4}},
		Restarts:  launcher.Restarts{Max: 1},
		Output:    launcher.Output{Quiet: true},
	})
	fmt.Println(result.Ending, result.Code, result.Restarts, err)
	// Output: success 0 1 <nil>
}

func ExamplePlan() {
	plan, err := launcher.Plan(context.Background(), launcher.Job{
		Command:   []string{"python3", "train.py"},
		Resources: launcher.Resources{MinNodes: 2, MaxNodes: 2, PerNode: []int{8}, GPU: true, Simulate: true},
	})
	fmt.Println(plan.WorldSize(), plan.Master(), err)
	// Output: 16 127.0.0.1 <nil>
}
