package metrics

// kind is the type in a metric's TYPE line.
type kind string

const (
	gaugeKind   kind = "gauge"
	counterKind kind = "counter"
)

// family is one metric, without its values. It is plain data, so that a process that shows no
// metrics does no work for them.
type family struct {
	level Level
	kind  kind
	// base is the name after the prefix of the level.
	base, help string
	// own are the labels after the labels of the level.
	own []string
}

func gauge(base, help string, labels ...string) *family {
	return &family{Jobs, gaugeKind, base, help, labels}
}

func counter(base, help string, labels ...string) *family {
	return &family{Jobs, counterKind, base, help, labels}
}

func ofNode(base, help string, labels ...string) *family {
	return &family{Nodes, gaugeKind, base, help, labels}
}

func ofRank(kind kind, base, help string) *family { return &family{Ranks, kind, base, help, nil} }

// name is the metric's name.
func (f *family) name() string {
	switch f.level {
	case Nodes:
		return "golaunch_node_" + f.base
	case Ranks:
		return "golaunch_rank_" + f.base
	}
	return "golaunch_" + f.base
}

// labels are the names of the labels, in the order in which [sheet.set] takes their values.
func (f *family) labels() []string {
	switch f.level {
	case Nodes:
		return append([]string{"node"}, f.own...)
	case Ranks:
		return []string{"job", "rank", "node"}
	}
	return f.own
}

// Metrics of the sources, and of what they contain.
var (
	up            = gauge("up", "1 if the source of the metrics answers, else 0. A source that has not answered for 30 seconds shows nothing else.", "source")
	dataTimestamp = gauge("data_timestamp_seconds", "When a source last answered, in seconds since 1970; its metrics are not newer.", "source")
	coordinator   = gauge("coordinator_info", "1 for each source that answers and has a coordinator, with that coordinator's version.", "source", "version")
	coordinators  = gauge("coordinators", "Coordinators of a cluster with several, by state: answering or silent.", "state")
	nodes         = gauge("nodes", "Nodes by state: ready (a job holds something there), spare (no job does), missing (no word from it), drained, quarantined (new jobs pass it over).", "state")
	gpus          = gauge("gpus", "GPUs by state: used (a job holds it), free, missing (its node is).", "state")
	jobs          = gauge("jobs", "Jobs by state, including finished jobs that the coordinator still knows.", "state")
)

// Metrics that say how the time of a cluster's nodes was spent.
var (
	chargedNodes = counter("charged_node_seconds_total", "Seconds of nodes, or of shares of them, that jobs held, by user and kind of node.", "user", "kind")
	chargedGPUs  = counter("charged_gpu_seconds_total", "Seconds of GPUs that jobs held, by user and kind of node.", "user", "kind")
	idleNodes    = counter("idle_node_seconds_total", "Seconds of nodes, or of shares of them, that no job held, by kind of node.", "kind")
	idleGPUs     = counter("idle_gpu_seconds_total", "Seconds of GPUs that no job held, by kind of node.", "kind")
	nodePrice    = gauge("kind_price", "The price of a node of a kind for an hour, as the capacity file has it.", "kind")
)

// Metrics of the state of a job.
var (
	jobInfo     = gauge("job_info", "1 for each job, with its command, cut to 200 bytes, and its kind: job or reservation.", "job", "command", "kind")
	jobState    = gauge("job_state", "1 for the state that a job is in, and 0 for each other.", "job", "state")
	submitted   = gauge("job_submitted_timestamp_seconds", "When a job was submitted, in seconds since 1970.", "job")
	finished    = gauge("job_finished_timestamp_seconds", "When a job ended, in seconds since 1970, and with which ending: success, program, budget, infrastructure, preempted, timeout or cancelled.", "job", "ending")
	exitCode    = gauge("job_exit_code", "The exit code of a job that is over.", "job")
	jobNodes    = gauge("job_nodes", "Nodes that a job has now.", "job")
	jobGPUs     = gauge("job_gpus", "GPUs that a job has now.", "job")
	ranks       = gauge("ranks", "Ranks of a job by state: running, ended, silent (should run, but nothing was heard of it for 30 seconds), pending (to be started).", "job", "state")
	attempts    = counter("attempts_total", "Attempts that were started, by the cause of each: start for the first, and then what stopped the one before, as in docs/failures.md.", "job", "cause")
	restarts    = gauge("restarts", "Restarts of a job so far.", "job")
	maxRestarts = gauge("max_restarts", "Restarts that a job may have.", "job")
	starting    = gauge("start_seconds", "Seconds that the newest start took, by phase: queued (from submission to the first start), starting (from a start until all ranks run), recovery (from a failure until all ranks run again).", "job", "phase")
)

// Metrics that say how the time of a job was spent. Times are sums over all ranks of the job: one
// second of eight ranks counts as eight seconds.
var (
	goodputSeconds  = counter("goodput_seconds_total", "Rank-seconds by what they went into: training, starting, stopping, backoff, waiting. They add up to all time since the job got its nodes.", "job", "state")
	lostSeconds     = counter("goodput_lost_seconds_total", "Rank-seconds of training that had to be trained again after a restart; a part of state training.", "job")
	importSeconds   = counter("goodput_importing_seconds_total", "Rank-seconds of waiting for a fork server to import modules; a part of state starting.", "job")
	goodputRatio    = gauge("goodput_ratio", "Training that was not lost as a share of all time since the job got its nodes, 0 to 1.", "job")
	interruptedTime = counter("interruption_seconds_total", "Rank-seconds from failures until all ranks trained again, by cause.", "job", "cause")
)

// Metrics of what the program reports, and of what golaunch measures.
var (
	step           = gauge("step", "The newest step that any rank has reported in its heartbeat.", "job")
	stepTarget     = gauge("step_target", "Steps that the program plans to make, if it reports that.", "job")
	steps          = counter("steps_total", "Steps made since this exporter began to watch; those made again after a restart count again.", "job")
	stepSeconds    = gauge("step_seconds", "Seconds that a step takes, the median of the ranks.", "job")
	eta            = gauge("eta_timestamp_seconds", "When the job will be done at this pace, in seconds since 1970.", "job")
	stragglerRatio = gauge("straggler_ratio", "The time of the slowest rank or node for its part of a step, divided by the median; 1 when none is slow.", "job")
	heartbeatAge   = gauge("heartbeat_age_seconds", "Seconds since the last heartbeat that is known, of the rank that has been silent for longest.", "job")
	outputAge      = gauge("output_age_seconds", "Seconds since any rank has last written to its output.", "job")
	logLines       = counter("log_lines_total", "Lines of output of all ranks since this exporter began to watch.", "job")
	logBytes       = counter("log_bytes_total", "Bytes of output of all ranks since this exporter began to watch.", "job")
	savedStep      = gauge("checkpoint_step", "The step of the last complete checkpoint, if its name says it.", "job")
	savedTime      = gauge("checkpoint_timestamp_seconds", "When the last complete checkpoint was written, in seconds since 1970.", "job")
	savedSeconds   = gauge("checkpoint_seconds", "Seconds that it took to write the last complete checkpoint.", "job")
	savedBytes     = gauge("checkpoint_bytes", "Bytes of the last complete checkpoint.", "job")
	atRisk         = gauge("work_at_risk_seconds", "Seconds of training since the last complete checkpoint began, which a stop would lose.", "job")
	cpus           = gauge("cpu_cores", "CPUs that the ranks of a job use, such as 12.5.", "job")
	memory         = gauge("memory_bytes", "Bytes that the ranks of a job have in memory.", "job")
	gpuUseMean     = gauge("gpu_utilization_mean_ratio", "Part of time in which a kernel ran, 0 to 1, the mean of the job's GPUs.", "job")
	gpuUseMin      = gauge("gpu_utilization_min_ratio", "Part of time in which a kernel ran, 0 to 1, the least of the job's GPUs.", "job")
	gpuMemory      = gauge("gpu_memory_used_bytes", "Bytes in use on the job's GPUs.", "job")
	gpuMemoryAll   = gauge("gpu_memory_capacity_bytes", "Bytes that the job's GPUs have.", "job")
	gpuMemoryMax   = gauge("gpu_memory_used_max_ratio", "Share of memory in use, 0 to 1, on the fullest of the job's GPUs.", "job")
	gpuPower       = gauge("gpu_power_watts", "Watts that the job's GPUs draw.", "job")
	gpuPowerLimit  = gauge("gpu_power_limit_watts", "Watts that the job's GPUs may draw.", "job")
	gpuPowerMin    = gauge("gpu_power_min_watts", "Watts of the job's GPU that draws the least.", "job")
	gpuTemperature = gauge("gpu_temperature_max_celsius", "Degrees Celsius of the hottest of the job's GPUs.", "job")
	gpuXids        = counter("gpu_xids_total", "Errors of the job's GPUs that the kernel has reported since this exporter began to watch.", "job")
)

// Metrics of each node, at level node.
var (
	nodeState     = ofNode("state", "1 for the state that a node is in, and 0 for each other; the states are those of golaunch_nodes.", "state")
	nodeJob       = ofNode("job_info", "1 for each job that holds something of a node.", "job")
	nodeGPUs      = ofNode("gpus", "GPUs of a node by state: used or free.", "state")
	nodeTimestamp = ofNode("data_timestamp_seconds", "When a node was last measured, in seconds since 1970.")
	nodeRanks     = ofNode("ranks", "Ranks that run on a node.")
	nodeCPUs      = ofNode("cpu_cores", "CPUs in use on a node, such as 12.5.")
	nodeCPUsAll   = ofNode("cpu_cores_capacity", "CPUs that a node has.")
	nodeMemory    = ofNode("memory_used_bytes", "Bytes of memory in use on a node.")
	nodeMemoryAll = ofNode("memory_capacity_bytes", "Bytes of memory that a node has.")
	nodeReceived  = ofNode("network_receive_bytes_per_second", "Bytes a second that the network cards of a node receive.")
	nodeSent      = ofNode("network_transmit_bytes_per_second", "Bytes a second that the network cards of a node send.")
)

// Metrics of each running rank, at level rank.
var (
	rankCPUs        = ofRank(gaugeKind, "cpu_cores", "CPUs that a rank uses, such as 1.5.")
	rankMemory      = ofRank(gaugeKind, "memory_bytes", "Bytes that a rank has in memory.")
	rankStep        = ofRank(gaugeKind, "step", "The newest step that a rank has reported in its heartbeat.")
	rankStepSeconds = ofRank(gaugeKind, "step_seconds", "Seconds that a step of a rank takes.")
	rankBeat        = ofRank(gaugeKind, "heartbeat_age_seconds", "Seconds since a rank's last known heartbeat.")
	rankLines       = ofRank(counterKind, "log_lines_total", "Lines of output of a rank since this exporter began to watch.")
	rankGPUUse      = ofRank(gaugeKind, "gpu_utilization_ratio", "Part of time in which a kernel ran on a rank's GPU, 0 to 1.")
	rankGPUMemory   = ofRank(gaugeKind, "gpu_memory_used_bytes", "Bytes in use on a rank's GPU.")
	rankGPUPower    = ofRank(gaugeKind, "gpu_power_watts", "Watts that a rank's GPU draws.")
	rankGPUHeat     = ofRank(gaugeKind, "gpu_temperature_celsius", "Degrees Celsius of a rank's GPU.")
)
