package record

// The names of the launchers in the documents.
const (
	Golaunch        = "golaunch"
	GolaunchTorch   = "golaunch --preload torch"
	GolaunchAuto    = "golaunch --preload auto"
	Mpirun          = "mpirun"
	Srun            = "srun"
	Torchrun        = "torchrun"
	TorchrunDefault = "torchrun, defaults"
	Ray             = "Ray"
	Torch           = "torch"
)

// Unit is the unit of samples.
type Unit string

const (
	Milliseconds Unit = "ms"
	Bytes        Unit = "B"
	// Processes is a number of processes.
	Processes Unit = "processes"
	// Share is a part of the runs, from 0 to 1.
	Share Unit = "share"
)

// Work is a task that all launchers do.
type Work struct{ ID, Label string }

// Group is a set of works in one table and, unless they are counted, in one plot.
type Group struct {
	ID    string
	Title string
	Unit  Unit
	Works []Work
	Peers []string
}

// Groups are all works that are measured.
var Groups = []Group{
	{"launch", "Ranks that do nothing, from the command to its exit", Milliseconds, []Work{
		{"launch-1", "1 rank"}, {"launch-8", "8 ranks"}, {"launch-32", "32 ranks"}, {"launch-128", "128 ranks"},
	}, []string{Golaunch, Mpirun, Srun, Torchrun}},
	{"restart", "From the death of one of 8 ranks to the start of the last new one", Milliseconds, []Work{
		{"restart-8", "8 ranks on one node"}, {"restart-nodes-8", "8 ranks on 4 nodes"},
	}, []string{Golaunch, Torchrun}},
	{"ddp", "Four ranks that train with DistributedDataParallel", Milliseconds, []Work{
		{"ddp-start", "command to the end of the first step"},
		{"ddp-restart", "death of a rank to the first step of the next attempt"},
	}, []string{Golaunch, GolaunchTorch, GolaunchAuto, Mpirun, Srun, Torchrun, TorchrunDefault, Ray}},
	{"ddp-memory", "Memory of the four ranks after the first step", Bytes, []Work{
		{"ddp-memory", "proportional (PSS), all ranks together"},
	}, []string{Golaunch, GolaunchTorch, GolaunchAuto, Mpirun, Srun, Torchrun, TorchrunDefault, Ray}},
	{"cluster", "A cluster of one node", Milliseconds, []Work{
		{"cluster-start", "nothing to a node that takes jobs"},
		{"cluster-status", "the status command"},
		{"cluster-submit", "a job of one rank of `true`, whole command"},
		{"cluster-workers", "8 workers, placed together, whole command"},
	}, []string{Golaunch, Srun, Ray}},
	{"cluster-memory", "Memory of that cluster after these jobs", Bytes, []Work{
		{"cluster-memory", "proportional (PSS), all its processes together"},
	}, []string{Golaunch, Srun, Ray}},
	{"store", "The start of a job at torch's store: all connect, count themselves and wait for the last", Milliseconds, []Work{
		{"store-1000", "1,000 clients"}, {"store-10000", "10,000 clients"}, {"store-18000", "18,000 clients"},
	}, []string{Golaunch, Torch}},
	{"store-memory", "Memory of the store for each connection", Bytes, []Work{
		{"store-memory-1000", "1,000 clients"}, {"store-memory-10000", "10,000 clients"}, {"store-memory-18000", "18,000 clients"},
	}, []string{Golaunch, Torch}},
	{"names", "A program with Ray's names", Milliseconds, []Work{
		{"names-first", "`ray.init()` to the first task's result"},
		{"names-tasks", "1,000 empty tasks"},
		{"names-calls", "1,000 calls of one actor"},
		{"names-call", "one call and back"},
		{"names-actors", "200 actors, until each has answered"},
		{"names-put", "put of 1 GiB of NumPy"},
		{"names-get", "its sum in another process"},
		{"names-far", "and on another node"},
	}, []string{Golaunch, Ray}},
	{"names-memory", "Memory of that program", Bytes, []Work{
		{"names-memory-actors", "with 200 actors, proportional (PSS), all its processes together"},
		{"names-memory-object", "its own for each of 10,000 small live objects"},
	}, []string{Golaunch, Ray}},
	{"orphans", "Processes of a job of 8 ranks that are left 10 s after a signal to the launcher, of 32", Processes, []Work{
		{"orphans-kill", "SIGKILL"}, {"orphans-term", "SIGTERM"},
	}, []string{Golaunch, Mpirun, Srun, Torchrun, Ray}},
	{"launcher-memory", "Memory of the launcher of 8 ranks", Bytes, []Work{
		{"launcher-memory", "proportional (PSS), all processes but the ranks and theirs"},
	}, []string{Golaunch, Mpirun, Srun, Torchrun}},
	{"hangs", "Launches of 32 ranks that exit at once that had not ended after 20 s, or failed", Share, []Work{
		{"hangs-32", "32 ranks"},
	}, []string{Golaunch, Mpirun, Srun, Torchrun}},
}
