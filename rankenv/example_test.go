package rankenv_test

import (
	"fmt"

	"github.com/golaunch/golaunch/rankenv"
)

func ExampleBase_Explain() {
	user, err := rankenv.ParseEnv("OMP_NUM_THREADS=4")
	if err != nil {
		fmt.Println(err)
		return
	}
	base := rankenv.Merge(rankenv.Layers{User: []rankenv.Var{user}, Inherited: []string{"PMIX_RANK=0"}})
	env := base.Explain(rankenv.Facts{Rank: 3, LocalRank: 1, WorldSize: 4, LocalWorldSize: 2, NodeRank: 1, Nodes: 2})
	for _, v := range env.Vars {
		if v.Name == "RANK" || v.Name == "OMP_NUM_THREADS" {
			fmt.Printf("%s=%s (%s: %s)\n", v.Name, v.Value, v.Source, v.Reason)
		}
	}
	for _, v := range env.Dropped {
		fmt.Printf("no %s=%s of %s: %s\n", v.Name, v.Value, v.Source, v.Reason)
	}
	// Output:
	// OMP_NUM_THREADS=4 (user: --env)
	// RANK=3 (torch: position in the job)
	// no OMP_NUM_THREADS=1 of default: overridden by user OMP_NUM_THREADS=4
	// no PMIX_RANK=0 of inherited: names a process of MPI's process manager
}

func ExampleCurrent() {
	me, err := rankenv.Current()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("rank %d of %d, rank 0 listens at %s\n", me.Rank, me.WorldSize, me.Master())
	// Output: not started by a launcher: TORCHELASTIC_RUN_ID is not set; run it with golaunch -- COMMAND
}
