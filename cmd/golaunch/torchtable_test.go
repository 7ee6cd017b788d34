package main

import (
	"runtime"
	"slices"
)

// torchCases has all cases that are run, in the order of torch's files.
var torchCases = slices.Concat(commandCases, agentCases)

// commandCases are from the tests of torchrun's command line.
var commandCases = []torchCase{
	{
		file: runFile, tests: "test_launch_user_script_python",
		args: words("--nnodes=1 --nproc-per-node=4 --rdzv-id=torchcase --monitor-interval=1 --start-method=spawn rank.py"),
		want: ranks(4),
	},
	{
		file: runFile, tests: "test_launch_user_script_python_caffe2_bc",
		args: words("--nnodes=1 --nproc-per-node=4 --master-addr=localhost --master-port=$PORT --node-rank=0 rank.py"),
		want: ranks(4),
	},
	{
		file: runFile, tests: "test_launch_user_script_bash test_nproc_launch_number_configurations",
		args: sh("--nnodes=1 --nproc-per-node=4 --rdzv-id=torchcase", sayRank),
		want: ranks(4),
	},
	{
		file: runFile, tests: "test_launch_user_script_default_nproc",
		args: sh("--nnodes=1 --rdzv-id=torchcase", sayRank),
		want: ranks(1),
	},
	{
		file: runFile, tests: "test_launch_user_script_bash test_launch_user_script_default_nproc",
		args: sh("--nnodes=1 --rdzv-id=torchcase --module", sayRank),
		want: failed,
		says: "both the --no-python flag and the --module flag", torchSays: "both the '--no-python' flag and the '--module' flag",
	},
	{
		file: runFile, tests: "test_launch_with_env_vars",
		env:  words("PET_NNODES=1 PET_NPROC_PER_NODE=4 PET_RDZV_ID=torchcase PET_MONITOR_INTERVAL=0.1 PET_START_METHOD=spawn PET_NO_PYTHON=1 PET_MODULE=0"),
		args: words("sh -c", sayRank),
		want: ranks(4),
	},
	{
		file: runFile, tests: "test_launch_with_env_vars",
		env:  words("PET_NO_PYTHON=1 PET_MODULE=1"),
		args: words("sh -c", sayRank),
		want: failed,
		says: "both the --no-python flag and the --module flag", torchSays: "both the '--no-python' flag and the '--module' flag",
	},
	{
		file: runFile, tests: "test_nproc_launch_auto_configurations",
		args: sh("--nnodes=1 --nproc-per-node=auto", sayRank),
		see: func(r *torchRun) string {
			if text := r.shown(); text != ranks(runtime.NumCPU()) {
				return text
			}
			return "a rank for each CPU\n" // a recording comes from another machine
		},
		want: "a rank for each CPU\n",
	},
	{
		file: runFile, tests: "test_nproc_launch_unknown_configurations",
		args: sh("--nnodes=1 --nproc-per-node=unknown", sayRank),
		want: failed,
		says: `--nproc-per-node: "unknown"`, torchSays: "Unsupported nproc_per_node value: unknown",
	},
	{
		file: runFile, tests: "test_nproc_gpu_launch_configurations",
		args: sh("--nnodes=1 --nproc-per-node=gpu", sayRank),
		want: failed,
		says: "--nproc-per-node: gpu: ", torchSays: "Cuda is not available",
	},
	{
		file: runFile, tests: "test_nproc_xpu_launch_configurations",
		args: sh("--nnodes=1 --nproc-per-node=xpu", sayRank),
		want: failed,
		says: `--nproc-per-node: "xpu"`, alone: true,
	},
	{
		file: runFile, tests: "test_launch_elastic",
		args: words("--nnodes=1:2 --nproc-per-node=4 "+meet+"--rdzv-conf='join_timeout=60,last_call_timeout=1,timeout=60' rank.py", "a", "b"),
		want: shows("succeeds", rows("rank %d of 4 a b", 4)),
	},
	{
		file: runFile, tests: "test_launch_elastic_worker_raise_exception",
		args: sh("--nnodes=1:2 --nproc-per-node=4 "+meet+"--rdzv-conf=last_call_timeout=1 --max-restarts=0", "exit 1"),
		want: failed,
		says: "exited with code 1", torchSays: "ChildFailedError",
	},
	{
		file: runFile, tests: "test_launch_standalone",
		args: words("--nnodes=1 --nproc-per-node=4 --standalone rank.py"),
		want: ranks(4),
	},
	{
		file: runFile, tests: "test_launch_run_path",
		args: words("--run-path --nnodes=1 --nproc-per-node=4 --start-method=fork rank.py x"),
		want: shows("succeeds", rows("rank %d of 4 x", 4)),
	},
	{
		file: runFile, tests: "test_launch_elastic_multiple_agents",
		nodes: []string{"", ""},
		args:  sh("--nnodes=1:2 --nproc-per-node=4 "+meet+"--rdzv_conf=timeout=5", sayRank),
		want:  ranks(8),
	},
	{
		file: runFile, tests: "test_min_max_nodes_parse",
		nodes: []string{"", ""},
		args:  sh("--nnodes=2:20 "+meet+"--rdzv-conf=last_call_timeout=1", sayRank),
		want:  ranks(2),
	},
	{
		file: runFile, tests: "test_min_max_nodes_parse",
		args: sh("--nnodes=2:20:30", sayRank),
		want: failed,
		says: `--nnodes: "2:20:30"`, torchSays: `nnodes=2:20:30 is not in "MIN:MAX" format`,
	},
	{
		file: runFile, tests: "test_is_torchelastic_launched_with_logs_spec_defined",
		args: sh("--nnodes=1 --logs_specs=default", `echo "launched: ${TORCHELASTIC_RUN_ID:+True}"`),
		want: shows("succeeds", "launched: True\n"),
	},
	{
		file: runFile, tests: "test_logs_logs_spec_entrypoint_must_be_defined",
		args: sh("--nnodes=1 --logs_specs=DOESNOT_EXIST", sayRank),
		want: failed,
		says: "--logs-specs DOESNOT_EXIST", torchSays: `Could not find entrypoint.*DOESNOT_EXIST`,
	},
	{
		file: runFile, tests: "test_init_method_tcp_with_torchelastic",
		args: words("--run-path --nproc-per-node=2 --start-method=fork --master-addr=localhost --master-port=$PORT meet.py tcp://localhost:$PORT"),
		want: shows("succeeds", rows("rank %d of 2: sum 1, launched True", 2)),
	},
	{
		file: runFile, tests: "test_init_method_env_with_torchelastic test_is_torchelastic_launched",
		args: words("--run-path --nproc-per-node=2 --start-method=fork --master-addr=localhost --master-port=$PORT meet.py env://"),
		want: shows("succeeds", rows("rank %d of 2: sum 1, launched True", 2)),
	},
	{
		file: runFile, tests: "test_capture_logs_using_default_logs_specs",
		env:  []string{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[rank${rank}]: "},
		args: sh("--nnodes=1 --nproc-per-node=4 --rdzv-id=torchcase --redirect=3 --tee=3", `echo creating`),
		want: shows("succeeds", rows("[rank%d]: creating", 4)),
	},
	{
		file: runFile, tests: "test_virtual_local_rank",
		env:  []string{"CUDA_VISIBLE_DEVICES=0,1"},
		args: sh("--nproc-per-node=2 --redirect=3 --tee=3 --virtual-local-rank", `echo "device $LOCAL_RANK of rank $RANK"`),
		want: shows("succeeds", rows("[default%[1]d]:device 0 of rank %[1]d", 2)),
	},
	{
		file: runFile, tests: "test_virtual_local_rank",
		args: sh("--nproc-per-node=2 --redirect=3 --tee=3", `echo "device $LOCAL_RANK of rank $RANK"`),
		want: shows("succeeds", rows("[default%[1]d]:device %[1]d of rank %[1]d", 2)),
	},

	{
		file: runFile, tests: "test_launch_user_script_bash",
		args: words("--nproc-per-node=2 --tee=3 --no-python echo $local_rank ${local_rank} $${local_rank} $$$local_rank ${rank}"),
		want: shows("succeeds", rows("[default%[1]d]:%[1]d %[1]d ${local_rank} $%[1]d ${rank}", 2)),
	},
	{
		file: launchFile, tests: "test_launch_without_env", module: "torch.distributed.launch",
		args:  words("--nnodes=1 --nproc-per-node=4 --master-addr=localhost --master-port=$PORT --node-rank=0 rank.py"),
		want:  ranks(4),
		torch: shows("succeeds", rows("rank %[1]d of 4 --local-rank=%[1]d", 4)),
	},
	{
		file: launchFile, tests: "test_launch_with_env", module: "torch.distributed.launch",
		args: words("--nnodes=1 --nproc-per-node=4 --master-addr=localhost --master-port=$PORT --node-rank=0 --use-env rank.py"),
		want: ranks(4),
	},
}
