package rankenv

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/placement"
)

// Visibility says which GPUs a rank sees.
type Visibility string

const (
	// SeeJob shows every rank all of the job's GPUs on its node. The rank's own GPU is
	// cuda:LOCAL_RANK. CUDA shows a process at most one MIG device, so ranks on MIG devices need
	// [SeeOwn].
	SeeJob Visibility = "job"
	// SeeOwn shows a rank only its own GPU, as cuda:0, and sets LOCAL_RANK=0, because
	// torch.cuda.set_device(LOCAL_RANK) would fail with another value. As with torchrun
	// --virtual-local-rank, LOCAL_RANK is 0 for CPU ranks too.
	SeeOwn Visibility = "own"
)

// Facts are the facts about one rank of one attempt.
type Facts struct {
	JobID string
	// Rank is the rank's number in the job. LocalRank is its number among the LocalWorldSize ranks
	// of the node, and the position of its GPU in GPUs. Rank-LocalRank is the same for all ranks of
	// a node.
	Rank, LocalRank           int
	WorldSize, LocalWorldSize int
	NodeRank, Nodes           int
	NodeName                  string
	// ReplicaGroups is the number of replica groups, 0 for none. ReplicaGroup is the number of the
	// rank's group. To the rank, this group looks like the whole job: all other numbers are those
	// within the group. Lighthouse is the URL of torchft's lighthouse for the group.
	ReplicaGroups, ReplicaGroup int
	Lighthouse                  string
	// RankMonitor and FTLauncher are sockets for NVIDIA's resiliency extension: that of the rank's
	// monitor, and that of the node's launcher. They are empty if there are none.
	RankMonitor, FTLauncher string
	// HyperPod is the socket of HyperPod's elastic agent; empty for none.
	HyperPod string
	// MasterAddr is the host of rank 0: a host name or an address, without brackets for IPv6.
	MasterAddr string
	MasterPort int
	// StoreHosted is true if golaunch serves torch's TCPStore at MasterAddr:MasterPort. Otherwise
	// rank 0 serves it.
	StoreHosted bool
	// Proxied is true if nodes other than rank 0's have a proxy of the TCPStore, at
	// ProxyAddr:ProxyPort. ProxyAddr and ProxyPort are empty on a node without a proxy.
	Proxied   bool
	ProxyAddr string
	ProxyPort int
	// Attempt is the number of this start, from 0, and the same on every node. Under torchrun, each
	// agent counts for itself.
	Attempt, MaxRestarts int
	// Role is "default" when empty, as under torchrun. RoleSize is the number of the job's ranks
	// with that role, and RoleRank the rank's position among them. Both are 0 if all ranks have the
	// same role.
	Role               string
	RoleSize, RoleRank int
	// GPUs are the job's GPUs on this node, in the order of local ranks. GPU is the rank's own; nil
	// for a CPU rank. The Index of a GPU is its number among all GPUs of the machine, even if an
	// inherited CUDA_VISIBLE_DEVICES hides some of them from golaunch.
	GPUs []placement.GPU
	GPU  *placement.GPU
	// PerGPU is how many ranks share a GPU. If it is more than 1, Visibility must be SeeOwn.
	// GPUMemory is the memory of that GPU in bytes; 0 if unknown. MPS says that CUDA MPS runs on
	// the node.
	PerGPU    int
	GPUMemory int64
	MPS       bool
	// Visibility is SeeJob when empty.
	Visibility Visibility
	// CPUs are the CPUs to which the rank is bound, as the kernel lists them ("0-23,96-119"), and
	// Bound says why these; both are empty if the rank is not bound. Cores is the number of cores
	// that only this rank uses; 0 if it shares its cores.
	CPUs, Bound string
	Cores       int
	// ErrorFile is the file in which torch's @record and [Info.ReportError] store the error that
	// ended the rank; empty for none.
	ErrorFile string
	// NoticeFile is the file that tells the rank that it will be stopped, and by which the rank
	// reports that it is ready; empty for none.
	NoticeFile string
	// HeartbeatFile is the file in which the rank may report its progress; empty for none.
	HeartbeatFile string
	// RASAddr is the address at which NCCL's RAS service of the rank listens. If it is empty, NCCL
	// chooses the address.
	RASAddr string
	// Ports are the ports on which programs of this node may listen for other nodes, FIRST:LAST;
	// empty means any.
	Ports string
	// Endpoint is a socket through which a controller on another machine reaches the rank; empty
	// for none.
	Endpoint string
}

// Vars returns the variables that a rank needs: the variables of torchrun 2.14
// (torch/distributed/elastic/agent/server/local_elastic_agent.py), NODE_RANK and NNODES, which many
// scripts expect, and GOLAUNCH_* for all other facts.
func Vars(f Facts) []Var {
	return slices.Concat(f.torch(), f.torchft(), f.recovery(), f.golaunch(), f.cuda(), f.mps(), f.defaults())
}

func (f Facts) torch() []Var {
	localRank, why := f.LocalRank, "position among the ranks of this node"
	if f.Visibility == SeeOwn {
		localRank, why = 0, "the rank sees its own GPU only, as cuda:0, or none"
	}
	store, whyStore := "False", "rank 0 serves the TCPStore"
	if f.StoreHosted {
		store, whyStore = "True", "golaunch serves the TCPStore; every rank is a client"
	}
	role := f.Role
	if role == "" {
		role = "default"
	}
	roleRank, roleSize, whyRole := f.RoleRank, f.RoleSize, "role of the ranks on this node"
	if roleSize == 0 || roleSize == f.WorldSize {
		roleRank, roleSize, whyRole = f.Rank, f.WorldSize, "the job has one role"
	}
	masterAddr, masterPort, whyAddr, whyPort := f.MasterAddr, f.MasterPort, "address of the node that runs rank 0", "port found free on that node for this attempt"
	if f.ProxyAddr != "" {
		masterAddr, masterPort = f.ProxyAddr, f.ProxyPort
		whyAddr, whyPort = "address of this node, where a proxy of the TCPStore is", "port of that proxy"
	}
	return []Var{
		{"RANK", strconv.Itoa(f.Rank), Torch, "position in the job"},
		{"LOCAL_RANK", strconv.Itoa(localRank), Torch, why},
		{"WORLD_SIZE", strconv.Itoa(f.WorldSize), Torch, "ranks of the job"},
		{"LOCAL_WORLD_SIZE", strconv.Itoa(f.LocalWorldSize), Torch, "ranks of the job on this node"},
		{"GROUP_RANK", strconv.Itoa(f.NodeRank), Torch, "torch's name for the node rank"},
		{"GROUP_WORLD_SIZE", strconv.Itoa(f.Nodes), Torch, "torch's name for the number of nodes"},
		{"ROLE_NAME", role, Torch, whyRole},
		{"ROLE_RANK", strconv.Itoa(roleRank), Torch, "position among the ranks of the role; " + whyRole},
		{"ROLE_WORLD_SIZE", strconv.Itoa(roleSize), Torch, "ranks of the role; " + whyRole},
		{"MASTER_ADDR", masterAddr, Torch, whyAddr},
		{"MASTER_PORT", strconv.Itoa(masterPort), Torch, whyPort},
		{"TORCHELASTIC_RESTART_COUNT", strconv.Itoa(f.Attempt), Torch, "number of this attempt, from 0"},
		{"TORCHELASTIC_MAX_RESTARTS", strconv.Itoa(f.MaxRestarts), Torch, "restarts that the job may use"},
		{"TORCHELASTIC_RUN_ID", f.JobID, Torch, "job id; tells libraries that a launcher like torchrun set RANK"},
		{"TORCHELASTIC_USE_AGENT_STORE", store, Torch, whyStore},
		{"TORCHELASTIC_ERROR_FILE", f.ErrorFile, Torch, "where @record leaves the traceback"},
	}
}

// torchft returns the variables for torchft; none for a rank of no replica group.
func (f Facts) torchft() []Var {
	if f.ReplicaGroups == 0 {
		return nil
	}
	return []Var{
		{"TORCHFT_LIGHTHOUSE", f.Lighthouse, Torch, "where golaunch serves torchft's lighthouse to this replica group"},
		{"REPLICA_GROUP_ID", strconv.Itoa(f.ReplicaGroup), Torch, "number of this replica group, from 0"},
		{"NUM_REPLICA_GROUPS", strconv.Itoa(f.ReplicaGroups), Torch, "replica groups of the job"},
	}
}

// InProcess returns the variables that may change when ranks restart within their processes.
func (f Facts) InProcess() map[string]string {
	env := map[string]string{}
	for _, v := range f.torch() {
		switch v.Name {
		case "RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":
			env[v.Name] = v.Value
		}
	}
	return env
}

// recovery returns the variables for NVIDIA's monitor, or for HyperPod; none if the rank has
// neither socket.
func (f Facts) recovery() []Var {
	switch {
	case f.HyperPod != "":
		return []Var{
			{"HYPERPOD_ELASTICAGENT_SOCKET_SERVER_PATH", f.HyperPod, Torch, "where golaunch serves the socket of HyperPod's elastic agent to this rank"},
			{"HYPERPOD_SIGNAL_COORDINATION", "disabled", Default, "the elastic agent's value"},
			{"JOB_RESTART_COUNT", strconv.Itoa(f.Attempt), Torch, "the elastic agent's name for the number of this attempt"},
		}
	case f.RankMonitor == "":
		return nil
	}
	return []Var{
		{"FT_RANK_MONITOR_IPC_SOCKET", f.RankMonitor, Torch, "where golaunch serves NVRx's rank monitor to this rank"},
		{"FT_LAUNCHER_IPC_SOCKET", f.FTLauncher, Torch, "where the rank may ask that its node or the job does not start again"},
	}
}

func (f Facts) golaunch() []Var {
	vars := []Var{
		{"NODE_RANK", strconv.Itoa(f.NodeRank), Golaunch, "position of this node in the job"},
		{"NNODES", strconv.Itoa(f.Nodes), Golaunch, "nodes of the job"},
		{"GOLAUNCH_JOB", f.JobID, Golaunch, "job id"},
		{"GOLAUNCH_NODE", f.NodeName, Golaunch, "name of this node"},
		{"GOLAUNCH_ATTEMPT", strconv.Itoa(f.Attempt), Golaunch, "number of this attempt, from 0"},
	}
	if f.Proxied {
		vars = append(vars, Var{"GOLAUNCH_MASTER_ADDR", f.MasterAddr, Golaunch, "address of the node that runs rank 0"},
			Var{"GOLAUNCH_MASTER_PORT", strconv.Itoa(f.MasterPort), Golaunch, "port of the TCPStore on that node"})
	}
	if f.GPU != nil && f.GPU.UUID != "" {
		vars = append(vars, Var{"GOLAUNCH_GPU_UUID", f.GPU.UUID, Golaunch, "the rank's own GPU"})
	}
	if f.shares() {
		share := strconv.FormatFloat(1/float64(f.PerGPU), 'g', -1, 64)
		vars = append(vars, Var{"GOLAUNCH_GPU_SHARE", share, Golaunch, "the part of the GPU's memory that the rank may use: " + f.sharers()})
	}
	if f.NoticeFile != "" {
		vars = append(vars, Var{"GOLAUNCH_NOTICE_FILE", f.NoticeFile, Golaunch, "is there when the rank is about to be stopped"})
	}
	if f.CPUs != "" {
		vars = append(vars, Var{"GOLAUNCH_CPUS", f.CPUs, Golaunch, "bound to " + f.Bound})
	}
	if f.Ports != "" {
		vars = append(vars, Var{"GOLAUNCH_PORTS", f.Ports, Golaunch, "--port-range: where programs of this node may listen for other nodes"})
	}
	if f.Endpoint != "" {
		vars = append(vars, Var{"GOLAUNCH_ENDPOINT", f.Endpoint, Golaunch, "by which a controller on another machine reaches the rank"})
	}
	if f.HeartbeatFile != "" {
		vars = append(vars, Var{"GOLAUNCH_HEARTBEAT_FILE", f.HeartbeatFile, Golaunch, "where the rank may write its step, for --hang-timeout and verdicts"})
	}
	return vars
}

// cuda returns the variables about the GPUs that the rank sees. For a CPU rank it returns none, so
// that the rank sees the GPUs that golaunch sees, as under torchrun.
func (f Facts) cuda() []Var {
	if f.GPU == nil {
		return nil
	}
	gpus, why := f.GPUs, "the job's GPUs on this node; the rank's own is cuda:LOCAL_RANK"
	if f.Visibility == SeeOwn {
		gpus, why = []placement.GPU{*f.GPU}, "the rank's own GPU"
	}
	list := deviceList(gpus)
	if f.shares() {
		if why = "the rank's GPU: " + f.sharers(); f.MPS && f.GPU.UUID != "" {
			list = f.GPU.UUID // by UUID, since a daemon of MPS may number the GPUs in another way
		}
	}
	return []Var{
		{"CUDA_VISIBLE_DEVICES", list, Golaunch, why},
		{"CUDA_DEVICE_ORDER", "PCI_BUS_ID", Golaunch, "GPU numbers count in the order of the PCI bus"},
	}
}

// shares reports whether other ranks may use the rank's GPU too.
func (f Facts) shares() bool { return f.GPU != nil && f.PerGPU > 1 }

func (f Facts) sharers() string { return strconv.Itoa(f.PerGPU) + " ranks share it" }

// mps returns the variables that divide the GPU among the ranks that share it. They can only lower
// the limits of the daemon
// (https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html).
func (f Facts) mps() []Var {
	if !f.shares() || !f.MPS {
		return nil
	}
	vars := []Var{{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", strconv.Itoa(100 / f.PerGPU), Default, "CUDA MPS runs here, and " + f.sharers()}}
	if share := f.GPUMemory / int64(f.PerGPU) >> 20; share > 0 {
		vars = append(vars, Var{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=" + strconv.FormatInt(share, 10) + "M", Default, "the rank's part of the GPU's memory, in MiB, for CUDA MPS"})
	}
	return vars
}

// deviceList names GPUs for CUDA_VISIBLE_DEVICES. It uses numbers, or UUIDs if one of the GPUs is a
// MIG device, which has no number.
func deviceList(gpus []placement.GPU) string {
	mig := slices.ContainsFunc(gpus, func(g placement.GPU) bool { return strings.HasPrefix(g.UUID, "MIG-") })
	names := make([]string, len(gpus))
	for i, g := range gpus {
		if names[i] = g.UUID; !mig {
			names[i] = strconv.Itoa(g.Index)
		}
	}
	return strings.Join(names, ",")
}

// Expiration returns the variable that tells programs when they will lose their nodes, so that they
// save before that. why says who takes the nodes. Amazon sets this variable for capacity blocks, in
// Unix seconds, and verl reads it.
func Expiration(at time.Time, why string) Var {
	return Var{"SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP", strconv.FormatInt(at.Unix(), 10), Default, why + "; verl saves before that"}
}

func (f Facts) defaults() []Var {
	vars := []Var{
		{"PYTHONUNBUFFERED", "1", Default, "output appears at once; torchrun runs python -u"},
		{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", Default, "torchrun's value: a failed collective ends the process"},
	}
	if f.RASAddr != "" {
		vars = append(vars, Var{
			"NCCL_RAS_ADDR", f.RASAddr, Default,
			"where this rank's NCCL can be asked how it is (2.24 and later); else all ranks of a node share localhost:28028",
		})
	}
	switch {
	case f.Cores > 0:
		vars = append(vars, Var{"OMP_NUM_THREADS", strconv.Itoa(f.Cores), Default, "cores that the rank has for itself: " + f.Bound})
	case f.LocalWorldSize > 1:
		vars = append(vars, Var{"OMP_NUM_THREADS", "1", Default, "torchrun's value for more than one rank on a node"})
	}
	return vars
}
