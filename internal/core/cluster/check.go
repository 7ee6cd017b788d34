package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// Check says why a job cannot be submitted now. The job of every [Submitted] must have passed
// Check.
func (s *State) Check(spec Spec) error {
	r := spec.Job.Request
	switch {
	case spec.Job.ID == "":
		return errors.New("a job needs an id")
	case s.jobs[spec.Job.ID] != nil:
		return fmt.Errorf("there is a job %s already; give this one another id", spec.Job.ID)
	case s.onlyJob != nil, spec.OnlyJob && len(s.jobs) > 0:
		return errors.New("this coordinator exists for one job, and has other jobs; start one with `golaunch coordinator`")
	case spec.OnlyJob && (spec.Within != "" || spec.Reserve || spec.Backfill || spec.GPUs != nil):
		return errors.New("the one job of a coordinator has all nodes; it takes no reservation, no backfill and no choice of GPUs")
	case spec.Reserve && spec.Within != "":
		return fmt.Errorf("a reservation within reservation %s is not possible; reserve of the cluster", spec.Within)
	case spec.Colocated < 0 || spec.Colocated > 1 && !spec.Reserve:
		return fmt.Errorf("%d jobs at a time on one GPU; want 1 or more, and only of a reservation", spec.Colocated)
	case (spec.Job.Groups > 0) != (spec.Job.Restart == job.RestartGroup):
		return errors.New("replica groups restart one by one, and nothing else does")
	case spec.Job.Groups > 0 && (spec.Job.MinGroups < 1 || spec.Job.MinGroups > spec.Job.Groups || spec.Job.Groups > job.MaxGroups):
		return fmt.Errorf("%d of %d replica groups; want 1 or more, and no more than there are, which are %d at most",
			spec.Job.MinGroups, spec.Job.Groups, job.MaxGroups)
	case spec.Job.LostRanks < 0 || spec.Job.LostRanks > 0 && !spec.Job.Gang():
		return fmt.Errorf("%d ranks that may be lost; want 0 or more, and only of ranks that restart together", spec.Job.LostRanks)
	case spec.Job.Groups > 0 && r.MinNodes != r.MaxNodes:
		return errors.New("replica groups need a fixed number of nodes")
	case spec.GPUs != nil && !r.GPU:
		return errors.New("GPUs are chosen for a job that asks for none")
	case spec.Priority != "" && !slices.Contains(Priorities, spec.Priority):
		return fmt.Errorf("there is no priority %q; use %s, %s or %s", spec.Priority, Production, Interactive, Batch)
	case spec.Within != "" && spec.Priority != "":
		return fmt.Errorf("reservation %s has a priority, the jobs within it have none", spec.Within)
	}
	if err := s.checkWithin(spec.Within); err != nil {
		return err
	}
	seen := map[int]bool{}
	for _, index := range spec.GPUs {
		if index < 0 || seen[index] {
			return fmt.Errorf("GPU %d is negative or chosen twice", index)
		}
		seen[index] = true
	}
	if err := r.Validate(); err != nil {
		return err
	}
	return s.checkLimit(spec)
}

// checkLimit refuses a job that could never start because of its user's limit.
func (s *State) checkLimit(spec Spec) error {
	p := purse{spec.User, cmp.Or(spec.Priority, Interactive)}
	most, limited := s.allowed(p)
	r := spec.Job.Request
	switch least := leastGPUs(r); {
	case !limited || !r.GPU || spec.Within != "":
		return nil
	case most == 0:
		return fmt.Errorf("%s may hold no GPUs with priority %s; use another --priority", owner(p.user), p.priority)
	case len(r.PerNode) == 1 && r.PerNode[0] == placement.AllGPUs:
		return fmt.Errorf("%s may hold %s with priority %s, and all GPUs of a node may be more; give --gpus-per-node a number",
			owner(p.user), words.Count(most, "GPU"), p.priority)
	case least > most:
		return fmt.Errorf("the job needs %s, and %s may hold %d with priority %s; ask for fewer, or use another --priority",
			words.Count(least, "GPU"), owner(p.user), most, p.priority)
	}
	return nil
}

func (s *State) checkWithin(id string) error {
	if id == "" {
		return nil
	}
	switch res := s.jobs[id]; {
	case res == nil:
		return fmt.Errorf("there is no reservation %s", id)
	case res.inner == nil:
		return fmt.Errorf("job %s is no reservation", id)
	case res.ended:
		return fmt.Errorf("reservation %s has ended", id)
	}
	return nil
}
