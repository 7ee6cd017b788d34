package stacks

import (
	"slices"
	"strings"
)

// roles tells the task of a process from a function that the process runs.
var roles = []struct{ function, file, role string }{
	{"_worker_loop", "torch/utils/data/_utils/worker.py", "DataLoader worker"},
	{"main", "multiprocessing/resource_tracker.py", "resource tracker"},
	{"_serve_one", "multiprocessing/forkserver.py", other},
	{"main", "multiprocessing/forkserver.py", "fork server"},
	{"_process_worker", "concurrent/futures/process.py", "pool worker"},
	{"worker", "multiprocessing/pool.py", "pool worker"},
}

// other is the role of a Python process that another one started for an unknown purpose.
const other = "child"

// setRoles gives a role to processes without one. The first process of a rank with Python is the
// rank itself and gets no role.
func setRoles(samples []Sample, parents []int) {
	type process struct{ rank, pid int }
	pythons := make(map[process]bool)
	for _, s := range samples {
		if s.Python != "" {
			pythons[process{s.Rank, s.PID}] = true
		}
	}
	for i := range samples {
		s := &samples[i]
		switch {
		case s.Role != "" || i >= len(parents):
		case s.Python == "" && s.Missing == "":
			s.Role = s.Name
		case pythons[process{s.Rank, parents[i]}]:
			s.Role = roleOf(s.Threads)
		}
	}
}

func roleOf(threads []Thread) string {
	for _, t := range threads {
		for _, f := range slices.Backward(t.Frames) { // a forked process has its parent's calls too
			for _, r := range roles {
				if f.Function == r.function && strings.HasSuffix(f.File, r.file) {
					return r.role
				}
			}
		}
	}
	return other
}
