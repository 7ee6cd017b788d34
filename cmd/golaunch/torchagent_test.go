package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// agentCases are from the tests of torch's agent: how it starts processes, and where their output
// goes.
var agentCases = []torchCase{
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
			if m := regexp.MustCompile(`(?:job failed:|Root Cause[^\n]*\n(?:.*\n){3}) +rank +:? ?(\d)`).FindStringSubmatch(text); m != nil {
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
