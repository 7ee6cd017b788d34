package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A torchCase is what one or more of torch's own tests assert, as far as a command line shows it. It is run by golaunch and by
// torchrun itself, each in a directory that has the programs of testdata/torchcases.
type torchCase struct {
	file, tests string // torch's file, and its tests with spaces between them
	module      string // whose main torchrun is, if it is not torch.distributed.run
	env         []string
	nodes       []string // what comes before args on each node, where there are several
	args        []string
	do          func(*torchRun)        // instead of one command on each node
	see         func(*torchRun) string // what is compared; else the ends of the commands and what they print
	want        string
	says        string // what golaunch has to say on the standard error, and torchrun
	torchSays   string
	torch       string // what torchrun shows, where that is not what is wanted
	alone       bool   // torchrun is not run
	lacks       string // what Debian's torch is built without, and these tests need
}

const (
	runFile       = "launcher/test_run.py"
	launchFile    = "launcher/launch_test.py"
	agentFile     = "elastic/agent/server/test/local_elastic_agent_test.py"
	apiFile       = "elastic/multiprocessing/api_test.py"
	errorsFile    = "elastic/multiprocessing/errors/api_test.py"
	handlerFile   = "elastic/multiprocessing/errors/error_handler_test.py"
	redirectsFile = "elastic/multiprocessing/redirects_test.py"
	tailFile      = "elastic/multiprocessing/tail_log_test.py"
)

// words are those of a text, and then others as they are.
func words(text string, others ...string) []string { return append(strings.Fields(text), others...) }

// sh is a shell script as the program.
func sh(flags, script string) []string { return words(flags+" --no-python sh -c", script) }

const (
	meet    = "--rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT --rdzv-id=torchcase " // how several nodes meet
	sayRank = `echo "rank $RANK of $WORLD_SIZE"`
)

// ranks is shown by a job whose ranks each say which they are.
func ranks(n int) string { return shows("succeeds", rows("rank %d of "+strconv.Itoa(n), n)) }

// rows has a line for each number below n.
func rows(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

// sad writes an error as torch's record does.
func sad(message string, at int) string {
	return fmt.Sprintf(`echo '{"message": {"message": "%s", "extraInfo": {"py_callstack": "from here", "timestamp": "%d"}}}' >$TORCHELASTIC_ERROR_FILE; `, message, at)
}

const (
	failed = "fails\n"
)

// reply is the error that the caller of torchrun gets.
func reply(r *torchRun) string {
	ends := r.nodes[0].result()
	text, err := os.ReadFile(filepath.Join(r.dir, "reply.json"))
	if err != nil {
		return ends + "\nno reply\n"
	}
	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		return fmt.Sprintf("%s\n%s: %v", ends, text, err)
	}
	sorted, _ := json.Marshal(content)
	return ends + "\n" + string(sorted) + "\n"
}

// logs sees, after how the job ends and what it prints, the files of a pattern.
func logs(patterns ...string) func(*torchRun) string {
	return func(r *torchRun) string {
		text := r.shown()
		for _, p := range patterns {
			text += p + ":\n" + strings.Join(slices.Sorted(strings.Lines(r.files("log/*/attempt_0/"+p))), "")
		}
		return text
	}
}

var torchCases = []torchCase{
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
		want: ranks(runtime.NumCPU()),
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

	{
		file: agentFile, tests: "test_run_happy_function test_run_function_with_return_value",
		args: sh("--nproc-per-node=2 "+meet, `echo "foo $RANK"`),
		want: shows("succeeds", rows("foo %d", 2)),
	},
	{
		file: agentFile, tests: "test_check_master_addr_port_override",
		args: sh("--master-addr=127.0.0.1 --master-port=$PORT", `echo "$MASTER_ADDR:$MASTER_PORT"`),
		want: shows("succeeds", "127.0.0.1:PORT\n"),
	},
	{
		file: agentFile, tests: "test_run_check_env_function",
		args: words(meet + "rank.py"),
		want: ranks(1),
	},
	{
		file: agentFile, tests: "test_run_check_nccl_async_error_handling_env",
		env:  []string{"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"},
		args: sh(meet, `echo "$TORCH_NCCL_ASYNC_ERROR_HANDLING"`),
		want: shows("succeeds", "0\n"),
	},
	{
		file: agentFile, tests: "test_run_check_nccl_async_error_handling_env_default",
		args: sh(meet, `echo "$TORCH_NCCL_ASYNC_ERROR_HANDLING"`),
		want: shows("succeeds", "1\n"),
	},
	{
		file: agentFile, tests: "test_run_agent_local_watchdog_setup_enabled test_run_agent_healthcheck_setup_enabled",
		env:  words("TORCHELASTIC_TIMER_FILE=$DIR/timer TORCHELASTIC_HEALTH_CHECK_PORT=12345"),
		args: sh("--max-restarts=2 "+meet, `echo "${TORCHELASTIC_TIMER_FILE:+timer} ${TORCHELASTIC_HEALTH_CHECK_PORT:-none}"`),
		want: shows("succeeds", "timer 12345\n"),
	},
	{
		file: agentFile, tests: "test_run_agent_local_watchdog_setup_disabled test_run_agent_healthcheck_setup_disabled",
		args: sh("--max-restarts=2 "+meet, `echo "${TORCHELASTIC_TIMER_FILE-none} ${TORCHELASTIC_HEALTH_CHECK_PORT-none}"`),
		want: shows("succeeds", "none none\n"),
	},
	{
		file: agentFile, tests: "test_run_distributed_sum_homogeneous test_run_with_custom_log_lines",
		nodes: []string{"", ""},
		args: sh("--nnodes=2 --nproc-per-node=4 --role=sum --tee=3 --log-line-prefix-template=[${role_name}-${local_rank}:${rank}]: "+meet,
			sayRank),
		want: shows("succeeds", rows("[sum-%[1]d:%[1]d]:rank %[1]d of 8", 4)+
			"[sum-0:4]:rank 4 of 8\n[sum-1:5]:rank 5 of 8\n[sum-2:6]:rank 6 of 8\n[sum-3:7]:rank 7 of 8\n"),
	},
	{
		file: agentFile, tests: "test_run_distributed_sum_heterogeneous test_simple_dist_sum test_dummy_compute",
		nodes: words("--nproc-per-node=1 --nproc-per-node=2"),
		args:  words("--nnodes=2 --role=sum --run-path --start-method=fork " + meet + "meet.py env://"),
		want:  shows("succeeds", rows("rank %d of 3: sum 3, launched True", 3)),
	},
	{
		file: agentFile, tests: "test_run_sad_function",
		env:  []string{"TORCHELASTIC_ERROR_FILE=$DIR/reply.json"},
		args: sh("--nproc-per-node=2 "+meet, sad("sad", 7)+"exit 1"),
		see:  reply,
		want: failed + `{"message":{"errorCode":1,"extraInfo":{"py_callstack":"from here","timestamp":"7"},"message":"sad"}}` + "\n",
	},
	{
		file: agentFile, tests: "test_run_bipolar_function",
		args: sh("--nproc-per-node=4 --max-restarts=2 "+meet, `case $RANK in 1) echo "try $TORCHELASTIC_RESTART_COUNT"; exit 1;; 3) exec sleep 1000; esac`),
		want: shows("fails", rows("try %d", 3)),
	},
	{
		file: agentFile, tests: "test_correct_rank_assignment_heterogeneous",
		nodes: roles("master 8", "trainer 1", "trainer 2", "trainer 3", "trainer 4", "ps 5", "ps 2"),
		args:  sh("--nnodes=7 "+meet, sayRole),
		see:   assignment,
		want:  "succeeds\nranks of 25\nmaster of 8\nps of 7\ntrainer of 10\n7 groups\n",
	},
	{
		file: agentFile, tests: "test_correct_rank_assignment_homogeneous",
		nodes: roles("master 1", "trainer 4", "trainer 4", "trainer 4", "trainer 4", "ps 3", "ps 3"),
		args:  sh("--nnodes=7 "+meet, sayRole),
		see:   assignment,
		want:  "succeeds\nranks of 23\nmaster of 1\nps of 6\ntrainer of 16\n7 groups\n",
	},
	{
		file: agentFile, tests: "test_double_agent_fault_tolerance",
		args: sh("--nnodes=2 --nproc-per-node=2 --max-restarts=2 --rdzv-conf=keep_alive_interval=2 "+meet, untilLost),
		do:   func(r *torchRun) { lose(r, 2); r.start("") },
		see: func(r *torchRun) string {
			return fmt.Sprintln(r.nodes[0].result(), r.nodes[1].code(), r.nodes[2].result())
		},
		want:  "succeeds -1 succeeds\n",
		alone: true,
	},
	{
		file: agentFile, tests: "test_double_agent_elastic",
		args:  sh("--nnodes=1:2 --nproc-per-node=2 --max-restarts=2 --rdzv-conf=keep_alive_interval=2,last_call_timeout=20 "+meet, untilLost),
		do:    func(r *torchRun) { lose(r, 2) },
		see:   func(r *torchRun) string { return fmt.Sprintln(r.nodes[0].result(), r.nodes[1].code()) },
		want:  "succeeds -1\n",
		alone: true,
	},
	{
		file: agentFile, tests: "test_no_exit_barrier_on_failure",
		nodes: []string{"", ""},
		args:  sh("--nnodes=2 --nproc-per-node=2 "+meet, `case $RANK in *[13]) exit 1; esac; exec sleep 1000`),
		want:  failed,
	},
	{
		file: agentFile, tests: "test_*_etcd",
		args:  sh("--rdzv-backend=etcd --rdzv-endpoint=localhost:$PORT", sayRank),
		want:  failed,
		says:  "--rdzv-backend etcd: static or c10d",
		alone: true,
	},
	{
		file: agentFile, tests: "test_*_etcd_v2",
		args:  sh("--rdzv-backend=etcd-v2 --rdzv-endpoint=localhost:$PORT", sayRank),
		want:  failed,
		says:  "--rdzv-backend etcd-v2: static or c10d",
		alone: true,
	},
	{
		file: agentFile, tests: "test_torch_rpc",
		lacks: "TensorPipe",
		nodes: words("--role=master --role=worker"),
		args:  words("--nnodes=2 --run-path --start-method=fork " + meet + "rpc.py"),
		want:  shows("succeeds", "hello from worker\n"),
	},
	{
		file: agentFile, tests: "test_workers_drift_success test_workers_drift_fail",
		args: sh("--nnodes=2 "+meet, `if [ $RANK = 0 ]; then echo >late; else read -r line <late; echo "rank $RANK is late"; fi`),
		do:   func(r *torchRun) { r.fifo("late"); r.start(""); r.start("") },
		want: shows("succeeds", "rank 1 is late\n"),
	},
	{
		file: agentFile, tests: "test_rank_restart_after_failure",
		args: sh("--nproc-per-node=2 --max-restarts=3 "+meet, `[ "$RANK $TORCHELASTIC_RESTART_COUNT" = "1 0" ] && exec sh kill.sh KILL
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 1000; echo "rank $RANK after $TORCHELASTIC_RESTART_COUNT"`),
		want: shows("succeeds", rows("rank %d after 1", 2)),
	},

	redirected("0", "out 0: console", "out 1: console", "err 0: console", "err 1: console"),
	redirected("1", "out 0: file", "out 1: file", "err 0: console", "err 1: console"),
	redirected("2", "out 0: console", "out 1: console", "err 0: file", "err 1: file"),
	redirected("3", "out 0: file", "out 1: file", "err 0: file", "err 1: file"),
	redirected("0:2,1:1", "out 0: console", "out 1: file", "err 0: file", "err 1: console"),
	badStreams("0:1,"), badStreams("11"), badStreams("0:1,1"), badStreams("1,0:1"),
	{
		file: apiFile, tests: "test_invalid_log_dir",
		args: sh("--log-dir=rank.py", sayRank),
		want: failed,
		says: "rank.py: not a directory", torchSays: "NotADirectoryError|FileExistsError",
	},
	stopped(syscall.SIGTERM), stopped(syscall.SIGINT), stopped(syscall.SIGHUP), stopped(syscall.SIGQUIT),
	{
		file: apiFile, tests: "test_binary_exit",
		args: sh("--nproc-per-node=2 --log-dir=log --redirects=0:3", `if [ $RANK = 0 ]; then read -r line <go; echo exit 138 from 0 >&2; exit 138; fi
trap 'echo told to stop >told; exit 1' TERM; echo >go; sleep 1000 & wait`),
		do: func(r *torchRun) { r.fifo("go"); r.start("") },
		see: func(r *torchRun) string {
			return fmt.Sprintln(r.nodes[0].code()) + r.files("log/*/attempt_0/0/stdout.log") + r.files("log/*/attempt_0/0/stderr.log") + r.files("told")
		},
		want:  "138\nexit 138 from 0\ntold to stop\n",
		torch: "1\nexit 138 from 0\ntold to stop\n",
	},
	{
		file: apiFile, tests: "test_function_raise",
		env:  []string{"TORCHELASTIC_ERROR_FILE=$DIR/reply.json"},
		args: words("--nproc-per-node=2 --run-path --start-method=fork --log-dir=log " + meet + "unrecorded.py"),
		see:  recorded,
		want: "fails\nerror.json: ValueError: rank 0 is sad, called from the script\nreply: the same, with code 1\n",
	},
	{
		file: apiFile, tests: "test_binary_raises",
		args: words("--nproc-per-node=2 --no-python python3 -c", `import os; os.environ["RANK"] == "1" or 1 / 0`),
		want: failed,
		says: "ZeroDivisionError", torchSays: "ZeroDivisionError",
	},
	{
		file: apiFile, tests: "test_binary_incorrect_entrypoint",
		args: words("--nproc-per-node=2 does_not_exist.py"),
		want: failed,
		says: "can't open file", torchSays: "can't open file",
	},
	{
		file: apiFile, tests: "test_binary_incorrect_entrypoint",
		args: words("--nproc-per-node=2 --no-python ./does_not_exist"),
		want: failed,
		says: "no such file", torchSays: "FileNotFoundError",
	},
	{
		file: apiFile, tests: "test_binary_redirect_and_tee",
		args:  sh("--nproc-per-node=2 --log-dir=log --redirects=0:2,1:0 --tee=0:1,1:2 --log-line-prefix-template=[rank${rank}]:", sayBoth),
		see:   places,
		want:  "succeeds\nout 0: [rank0]: file\nout 1: console file\nerr 0: file\nerr 1: [rank1]: file\n",
		torch: "succeeds\nout 0: [rank0]: file\nout 1: console\nerr 0: file\nerr 1: [rank1]: file\n",
	},
	{
		file: apiFile, tests: "test_binary_duplicate_log_filters",
		args: sh("--nproc-per-node=2 --log-dir=log --redirects=0:2,1:0 --tee=0:1,1:2 --log-line-prefix-template=[rank${rank}]: "+
			"--duplicate-stdout-filters=helloA --duplicate-stderr-filters=worldA,B",
			`for word in helloA helloB worldA worldB worldC; do echo "$word out"; echo "$word err" >&2; done`),
		see: logs("filtered_stdout.log", "filtered_stderr.log"),
		want: shows("succeeds", "[rank0]:helloA out\n[rank0]:helloB out\n[rank0]:worldA out\n[rank0]:worldB out\n[rank0]:worldC out\n"+
			"helloA out\nhelloB out\nworldA out\nworldB out\nworldC out\n") +
			"filtered_stdout.log:\n[rank0]:helloA out\n" +
			"filtered_stderr.log:\n[rank1]:helloB err\n[rank1]:worldA err\n[rank1]:worldB err\n",
	},
	{
		file: apiFile, tests: "test_binary_signal",
		args: words("--nproc-per-node=2 --no-python sh kill.sh SEGV"),
		want: failed,
		says: "died of SIGSEGV", torchSays: `exitcode +: -11 .*\n.*\n.*Signal 11 \(SIGSEGV\)`,
	},

	{
		file: errorsFile, tests: "test_process_failure_signal test_child_failed_error_signal_name_in_message",
		args: words("--nproc-per-node=1 --no-python sh kill.sh SEGV"),
		want: failed,
		says: "died of SIGSEGV", torchSays: `Signal 11 \(SIGSEGV\)`,
	},
	{
		file: errorsFile, tests: "test_failure_incorrect_reply_file",
		args: sh("", `echo '{"unknown_key": "unknown"}' >$TORCHELASTIC_ERROR_FILE; exit 1`),
		want: failed,
		says: "exited with code 1", torchSays: "Unknown error file format|KeyError",
	},
	{
		file: errorsFile, tests: "test_process_failure_new_format",
		args: sh("", `echo '{"message": "it is sad", "timestamp": 10}' >$TORCHELASTIC_ERROR_FILE; exit 1`),
		want: failed,
		says: "it is sad", torchSays: "it is sad",
	},
	{
		file: errorsFile, tests: "test_process_mast_error_format",
		args: sh("", `echo '{"message": "it is sad", "timestamp": "10"}' >$TORCHELASTIC_ERROR_FILE; exit 1`),
		want: failed,
		says: "it is sad", torchSays: "it is sad",
	},
	{
		file: errorsFile, tests: "test_process_failure",
		args: sh("", sad("it is sad", 10)+"exit 1"),
		want: failed,
		says: "from here", torchSays: "time +: 1970-01-01(.*\n)* +traceback : from here",
	},
	{
		file: errorsFile, tests: "test_child_failed_error",
		args: sh("--nproc-per-node=2", `if [ $RANK = 1 ]; then `+sad("the second to end", 10)+`echo >go; exec sleep 1000; fi
`+sad("the first to end", 20)+`read -r line <go; exit 1`),
		do: func(r *torchRun) { r.fifo("go"); r.start("") },
		see: func(r *torchRun) string {
			r.nodes[0].code()
			text := r.nodes[0].errors()
			if m := regexp.MustCompile(`(?:first failure|Root Cause[^\n]*\n(?:.*\n){3}) +rank +:? ?(\d)`).FindStringSubmatch(text); m != nil {
				return "rank " + m[1]
			}
			return text
		},
		want:  "rank 0",
		torch: "rank 1",
	},
	{
		file: errorsFile, tests: "test_record_child_failure test_record",
		env:  []string{"TORCHELASTIC_ERROR_FILE=$DIR/reply.json"},
		args: words("--nproc-per-node=2 --run-path --start-method=fork --log-dir=log " + meet + "raises.py"),
		see:  recorded,
		want: "fails\nerror.json: ValueError: rank 0 is sad, called from the script\nreply: the same, with code 1\n",
	},
	{
		file: errorsFile, tests: "test_process_failure_no_error_file",
		args: sh("--redirects=3", "echo last words >&2; exit 13"),
		see: func(r *torchRun) string {
			text := r.nodes[0].result() + "\n"
			for _, report := range []string{"last words", "To enable traceback see"} {
				if strings.Contains(r.nodes[0].errors(), report) {
					text += report + "\n"
				}
			}
			return text
		},
		want:  "fails\nlast words\n",
		torch: "fails\nTo enable traceback see\n",
	},
	{
		file: errorsFile, tests: "test_record_child_failure_no_child_error_file",
		env:  []string{"TORCHELASTIC_ERROR_FILE=$DIR/reply.json"},
		args: sh("", "exit 3"),
		see:  reply,
		want: "fails\nno reply\n",
	},
	{
		file: handlerFile, tests: "test_dump_error_file test_dump_error_file_overwrite_existing",
		env:  []string{"TORCHELASTIC_ERROR_FILE=$DIR/reply.json"},
		args: sh("", sad("new", 8)+"exit 1"),
		do: func(r *torchRun) {
			if err := os.WriteFile(filepath.Join(r.dir, "reply.json"), []byte(`{"message": "old"}`), 0o600); err != nil {
				r.Fatal(err)
			}
			r.start("")
		},
		see:  reply,
		want: failed + `{"message":{"errorCode":1,"extraInfo":{"py_callstack":"from here","timestamp":"8"},"message":"new"}}` + "\n",
	},

	{
		file: redirectsFile, tests: "test_redirect_stdout",
		args: words("--log-dir=log --redirects=1 streams.py"),
		see:  logs("0/stdout.log"),
		want: "succeeds\n0/stdout.log:\nc 1\nprogram 1\npython 1\n",
		says: "python 2", torchSays: "python 2",
	},
	{
		file: redirectsFile, tests: "test_redirect_stderr",
		args: words("--log-dir=log --redirects=2 streams.py"),
		see:  logs("0/stderr.log"),
		want: "succeeds\nc 1\nprogram 1\npython 1\n0/stderr.log:\nc 2\nprogram 2\npython 2\n",
	},
	{
		file: redirectsFile, tests: "test_redirect_both",
		args: words("--log-dir=log --redirects=3 streams.py"),
		see:  logs("0/stdout.log", "0/stderr.log"),
		want: "succeeds\n0/stdout.log:\nc 1\nprogram 1\npython 1\n0/stderr.log:\nc 2\nprogram 2\npython 2\n",
	},
	{
		file: redirectsFile, tests: "test_redirect_large_buffer_py",
		args: words("--log-dir=log --redirects=1 many.py python 100000"),
		see:  func(r *torchRun) string { return r.shown() + tails(r.files("log/*/attempt_0/0/stdout.log")) },
		want: "succeeds\n1 with 0 to 99999\n",
	},
	{
		file: redirectsFile, tests: "test_redirect_large_buffer_c",
		args: words("--log-dir=log --redirects=1 many.py c 100000"),
		see:  func(r *torchRun) string { return r.shown() + tails(r.files("log/*/attempt_0/0/stdout.log")) },
		want: "succeeds\n1 with 0 to 99999\n",
	},

	{
		file: tailFile, tests: "test_tail",
		args: words("--nproc-per-node=32 --role=writer --tee=1 --no-python seq 0 999"),
		see:  func(r *torchRun) string { return r.nodes[0].result() + "\n" + tails(r.printed()) },
		want: "succeeds\n32 with 0 to 999\n",
	},
	{
		file: tailFile, tests: "test_tail_write_to_dst_file",
		args: words("--nproc-per-node=32 --log-dir=log --tee=1 --duplicate-stdout-filters=.0 --no-python seq -f %.1f 0 999"),
		see: func(r *torchRun) string {
			return r.nodes[0].result() + "\n" + tails(strings.ReplaceAll(r.files("log/*/attempt_0/filtered_stdout.log"), ".0", ""))
		},
		want: "succeeds\n32 with 0 to 999\n",
	},
	{
		file: tailFile, tests: "test_tail_with_custom_prefix",
		args: words("--nproc-per-node=3 --tee=1 --log-line-prefix-template=[worker${local_rank}][${local_rank}]: --no-python seq 7 7"),
		want: shows("succeeds", rows("[worker%[1]d][%[1]d]:7", 3)),
	},
	{
		file: tailFile, tests: "test_tail_with_custom_filter",
		args: words("--nproc-per-node=3 --log-dir=log --role=writer --redirects=1 --tee=1 --duplicate-stdout-filters=2 --no-python seq 0 19"),
		see: func(r *torchRun) string {
			return r.nodes[0].result() + "\n" + shows("filtered:", r.files("log/*/attempt_0/filtered_stdout.log"))
		},
		want: "succeeds\n" + shows("filtered:", rows("[writer%d]:2", 3)+rows("[writer%d]:12", 3)),
	},
}

const sayBoth = `echo "out $RANK"; echo "err $RANK" >&2`

// redirected is a job whose streams go to files, as --redirects says. Here what goes to the console is in a file too.
func redirected(streams string, lines ...string) torchCase {
	torch := "succeeds\n" + strings.Join(lines, "\n") + "\n"
	c := torchCase{
		file: apiFile, tests: "test_from_value test_from_value_map test_to_map test_binary",
		args: sh("--nproc-per-node=2 --log-dir=log --redirects="+streams, sayBoth),
		see:  places,
		want: strings.ReplaceAll(torch, "console", "console file"),
	}
	if c.want != torch {
		c.torch = torch
	}
	return c
}

// places are where the words of two ranks are: on the console as they are, or behind a prefix, and in the files.
func places(r *torchRun) string {
	text := r.nodes[0].result() + "\n"
	for _, stream := range []string{"out", "err"} {
		console := r.printed()
		if stream == "err" {
			console = r.nodes[0].errors()
		}
		for _, rank := range []string{"0", "1"} {
			text += stream + " " + rank + ":"
			if m := regexp.MustCompile(`(?m)^(\[\w+\]:)?` + stream + " " + rank + "$").FindStringSubmatch(console); m != nil {
				text += " " + cmp.Or(m[1], "console")
			}
			if strings.Contains(r.files("log/*/attempt_0/"+rank+"/std"+stream+".log"), stream+" "+rank+"\n") {
				text += " file"
			}
			text += "\n"
		}
	}
	return text
}

func badStreams(text string) torchCase {
	return torchCase{
		file: apiFile, tests: "test_from_str_bad_input",
		args: sh("--redirects="+text, sayRank),
		want: failed,
		says: `--redirects: "` + text + `"`, torchSays: "ValueError: .*" + text,
	}
}

// stopped is a job that gets a signal when its ranks are up: none of them is left when it ends. What --tee shows says more than the
// ranks could: torchrun has started them all, and leaves none behind.
func stopped(by syscall.Signal) torchCase {
	return torchCase{
		file: apiFile, tests: "test_subprocess_context_close test_no_zombie_process_binary",
		args: words("--nproc-per-node=2 --tee=1 --no-python sh up.sh"),
		do: func(r *torchRun) {
			up := r.meets("node-0.out")
			n := r.start("")
			lines := up.wait(2)
			n.signal(by)
			n.code()
			for _, line := range lines {
				_, text, _ := strings.Cut(line, ":")
				pid, err := strconv.Atoi(text)
				if err != nil {
					r.Error(err)
				} else if syscall.Kill(pid, 0) == nil {
					r.Errorf("process %d is left after %v", pid, by)
				}
			}
		},
		see:  func(r *torchRun) string { return r.nodes[0].result() + "\n" },
		want: failed,
	}
}

// recorded is the error that is recorded for rank 0, and what the caller gets of it.
func recorded(r *torchRun) string {
	text := r.nodes[0].result() + "\n"
	type message struct {
		Message   string
		ErrorCode *int
		ExtraInfo struct {
			Stack     string `json:"py_callstack"`
			Timestamp string
		}
	}
	var own, reply struct{ Message message }
	if err := errors.Join(json.Unmarshal([]byte(r.files("log/torchcase_*/attempt_0/0/error.json")), &own), json.Unmarshal([]byte(r.read("reply.json")), &reply)); err != nil {
		r.Error(err)
	}
	at, err := strconv.Atoi(own.Message.ExtraInfo.Timestamp)
	if err != nil || at == 0 {
		r.Errorf("timestamp %q", own.Message.ExtraInfo.Timestamp)
	}
	text += "error.json: " + own.Message.Message
	if strings.Contains(own.Message.ExtraInfo.Stack, r.c.args[len(r.c.args)-1]) {
		text += ", called from the script\n"
	}
	if code := reply.Message.ErrorCode; code != nil {
		reply.Message.ErrorCode = nil
		if reply == own {
			text += fmt.Sprintln("reply: the same, with code", *code)
		}
	}
	return text
}

// tails says how many prefixes have lines with which numbers, each once.
func tails(text string) string {
	numbers := map[string][]int{}
	for line := range strings.Lines(text) {
		prefix, number, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Sprintf("%q\n", line)
		}
		numbers[prefix] = append(numbers[prefix], n)
	}
	same := map[string]int{}
	for _, n := range numbers {
		if consecutive(n) {
			same[fmt.Sprint(n[0], " to ", n[len(n)-1])]++
		} else {
			same[fmt.Sprint("not consecutive ", len(n))]++
		}
	}
	out := ""
	for what, n := range same {
		out += fmt.Sprintf("%d with %s\n", n, what)
	}
	return out
}

// roles are nodes that have ranks of a role.
func roles(of ...string) (nodes []string) {
	for _, o := range of {
		role, n, _ := strings.Cut(o, " ")
		nodes = append(nodes, "--role="+role+" --nproc-per-node="+n)
	}
	return nodes
}

const sayRole = `echo "$RANK of $WORLD_SIZE, $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, group $GROUP_RANK"`

// assignment says of which sizes the world and the roles are whose ranks are there once each, and how many groups have ranks that
// follow each other, in the world and in their role.
func assignment(r *torchRun) string {
	world, byRole, groups := map[string][]int{}, map[string][]int{}, map[int][2][]int{}
	for line := range strings.Lines(r.printed()) {
		var rank, roleRank, group int
		var size, role, roleSize string
		if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " ,"), "%d of %s , %s %d of %s , group %d", &rank, &size, &role, &roleRank, &roleSize, &group); err != nil {
			r.Errorf("%q: %v", line, err)
		}
		world[size] = append(world[size], rank)
		byRole[role+" of "+roleSize] = append(byRole[role+" of "+roleSize], roleRank)
		g := groups[group]
		groups[group] = [2][]int{append(g[0], rank), append(g[1], roleRank)}
	}
	text := ""
	for size, ranks := range world {
		text += complete("ranks of "+size, ranks)
	}
	var each []string
	for role, ranks := range byRole {
		each = append(each, complete(role, ranks))
	}
	slices.Sort(each)
	in := 0
	for _, g := range groups {
		if consecutive(g[0]) && consecutive(g[1]) {
			in++
		}
	}
	return r.nodes[0].result() + "\n" + text + strings.Join(each, "") + fmt.Sprintln(in, "groups")
}

// complete is a name that ends with a number, if the ranks are those below it, and all of them otherwise.
func complete(name string, ranks []int) string {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, ' ')+1:])
	if consecutive(ranks) && len(ranks) == n && slices.Min(ranks) == 0 {
		return name + "\n"
	}
	return fmt.Sprintln(name, "are not", ranks)
}

func consecutive(n []int) bool {
	slices.Sort(n)
	for i := range n {
		if n[i] != n[0]+i {
			return false
		}
	}
	return true
}

// untilLost is a rank that ends well in any attempt but the first, which never ends.
const untilLost = `[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; echo $RANK >up; exec sleep 1000`

// lose has two nodes of so many ranks meet, and kills the second, which is not the one that the nodes meet at.
func lose(r *torchRun, each int) {
	up := r.meets("up")
	first := r.start("")
	first.golaunch.line("waiting for")
	second := r.start("")
	up.wait(2 * each)
	second.golaunch.kill()
}

// TestTorchCases runs the cases of torch's own tests. docs/torchrun.md tells of each.
func TestTorchCases(t *testing.T) {
	o := startTorch(t)
	t.Logf("torch %s of %s", o.version, o.python)
	for _, c := range torchCases {
		if c.module == "" {
			c.module = "torch.distributed.run"
		}
		t.Run(strings.TrimSuffix(c.file, ".py")+"/"+strings.ReplaceAll(c.tests, " ", ","), func(t *testing.T) {
			t.Parallel()
			if c.lacks != "" && o.debian() {
				t.Skipf("Debian's torch is built without %s; let %s name the Python of another", c.lacks, testPython)
			}
			t.Run("golaunch", func(t *testing.T) {
				if got := c.run(t, o, false); got != c.want {
					t.Errorf("golaunch shows\n%s\nnot\n%s", got, c.want)
				}
			})
			if c.alone || !o.runs() {
				return
			}
			t.Run("torchrun", func(t *testing.T) {
				want := c.want
				if c.torch != "" {
					want = c.torch
				}
				if got := c.run(t, o, true); got != want {
					t.Errorf("torchrun shows\n%s\nnot\n%s", got, want)
				}
			})
		})
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// TestTorchCasesAreTold holds that docs/torchrun.md has each case once, and says of those that are run here what is seen of them.
func TestTorchCasesAreTold(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/torchrun.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, c := range torchCases {
		for test := range strings.FieldsSeq(c.tests) {
			name := c.file + " " + test
			switch {
			case c.torch != "":
				seen[name] = "differs"
			case c.alone:
				seen[name] = "alone"
			case seen[name] == "":
				seen[name] = "same"
			}
		}
	}
	told := map[string]bool{}
	file := ""
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*\\.py`)? \\| ([^|]*) \\| (same|differs|alone|not here)(: [^|]*)? \\|$").FindAllStringSubmatch(string(text), -1) {
		file = cmp.Or(strings.Trim(row[1], "`"), file)
		if row[3] != "same" && row[4] == "" {
			t.Errorf("no reason: %s", row[0])
		}
		for _, test := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			name := file + " " + test[1]
			if told[name] {
				t.Errorf("%s is told of twice", name)
			}
			told[name] = true
			if kind := cmp.Or(seen[name], "not here"); kind != row[3] {
				t.Errorf("%s: the table says %s, the test %s", name, row[3], kind)
			}
		}
	}
	for name := range seen {
		if !told[name] {
			t.Errorf("the table lacks %s", name)
		}
	}
}
