package stacks

import "testing"

func TestRole(t *testing.T) {
	server := Frame{"main", "/usr/lib/python3.12/multiprocessing/forkserver.py", 1}
	serve := Frame{"_serve_one", "/usr/lib/python3.12/multiprocessing/forkserver.py", 2}
	worker := Frame{"_worker_loop", "/x/site-packages/torch/utils/data/_utils/worker.py", 3}
	for want, frames := range map[string][]Frame{
		"fork server":       {server},
		"DataLoader worker": {server, serve, worker, {"get", "queues.py", 4}},
		other:               {server, serve, {"work", "train.py", 5}},
		"pool worker":       {{"_process_worker", "/usr/lib/python3.12/concurrent/futures/process.py", 6}},
		"resource tracker":  {{"main", "/usr/lib/python3.12/multiprocessing/resource_tracker.py", 7}},
	} {
		if got := roleOf([]Thread{{Frames: frames}}); got != want {
			t.Errorf("%v is the role %q, not %q", frames, got, want)
		}
	}
}

func TestFile(t *testing.T) {
	for file, want := range map[string]string{
		"/a/lib/python3.12/site-packages/torch/x.py": "torch/x.py",
		"/usr/lib/python3/dist-packages/numpy/y.py":  "numpy/y.py",
		"/usr/lib/python3.13/threading.py":           "threading.py",
		"/home/a/run/train.py":                       "run/train.py",
		"/train.py":                                  "/train.py",
		"train.py":                                   "train.py",
		"<string>":                                   "<string>",
	} {
		if got := shortFile(file); got != want {
			t.Errorf("%s is shown as %s, not %s", file, got, want)
		}
	}
}
