package verdict

import (
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// samples has for each rule a real line with its source, and a similar line with another meaning.
var samples = []struct{ cause, line, seen, miss string }{
	{"end-asked", "(golaunch: rank 0 asks for the end of the job: the data is gone)", "what the agent writes", "golaunch: a rank asks for the end of the job"},
	{"exclude-asked", "(golaunch: rank 3 asks for a restart without this node: NVLink)", "what the agent writes", "golaunch: rank 3 asks for a restart"},
	{"restart-asked", "(golaunch: rank 3 asks for a restart of its process: the optimizer is gone)", "what the agent writes", "golaunch: rank 3 asks for a restart"},
	{
		"gpu-lost", "NVRM: Xid (PCI:0000:23:00): 79, pid=1122, GPU has fallen off the bus.", "open-gpu-kernel-modules discussion 1327",
		"NVRM: Xid (PCI:0000:23:00): 790, pid=1122",
	},
	{
		"ecc-uncorrectable", "RuntimeError: CUDA error: uncorrectable ECC error encountered", "cudaErrorECCUncorrectable",
		"ECC errors: 0 correctable, 0 uncorrectable",
	},
	{
		"nvlink-error", "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
		"CUDA 12.8", "NCCL INFO Channel 00 : 0[eb00] -> 1[eb01] via P2P/NVLink",
	},
	{"gpu-fault", "NVRM: Xid (PCI:0000:0f:00): 119, pid=1234, name=python", "docs.nvidia.com/deploy/xid-errors", "NVRM: Xid (PCI:0000:0f:00): 43, pid=1234, name=python"},
	{"gpu-fabric-down", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "cudaErrorSystemNotReady", "the subsystem not yet initialized"},
	{"node-failure", "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-25T14:35:32 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "Slurm", "recovering from node failure"},
	{
		"cuda-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which 1.58 GiB is free.",
		"torch 2.5", "cuda memory: 12 GiB free",
	},
	{"gpu-busy", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "cudaErrorDevicesUnavailable", "all devices are busy"},
	{"driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "torch/csrc/cuda", "NVIDIA driver 535.54 loaded"},
	{"gpu-unsupported", "AssertionError: Torch not compiled with CUDA enabled", "torch 1.13", "compiled with CUDA 12.4"},
	{"gpu-index", "RuntimeError: CUDA error: invalid device ordinal", "cudaErrorInvalidDevice", "ValueError: invalid ordinal"},
	{"no-gpu", "RuntimeError: No CUDA GPUs are available", "torch/csrc/cuda", "4 CUDA GPUs are available"},
	{"device-assert", "RuntimeError: CUDA error: device-side assert triggered", "cudaErrorAssert", "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."},
	{"illegal-memory-access", "RuntimeError: CUDA error: an illegal memory access was encountered", "cudaErrorIllegalAddress", "checking for illegal memory access"},
	{"cuda-error", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`", "cuBLAS", "CUDA kernel errors might be asynchronously reported at some other API call"},
	{"nan-loss", "AssertionError: Rank 13: found NaN in local grad norm in backward pass before data-parallel communication collective.", "Megatron-LM", "lm loss: nan"},
	{"preempted", "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-25T14:35:32 DUE TO PREEMPTION ***", "Slurm", "Job terminated due to preemption."},
	{"time-limit", "slurmstepd: error: *** JOB 10763635 ON c0662 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***", "Slurm", "due to time limit we skip the evaluation"},
	{"bus-error", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "torch 1.13", "the bus error counter is 0"},
	{"host-oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=8538204.0. Some of the step tasks have been OOM Killed.", "Slurm", "oom_kill 0"},
	{"dataloader-worker-killed", "RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed. ", "torch/csrc/DataLoader.cpp", "DataLoader worker 3 is ready"},
	{"segfault", "Fatal Python error: Segmentation fault", "Python 3.11", "a segmentation model"},
	{"shm-full", "RuntimeError: unable to write to file </torch_2034_3423_0>: No space left on device (28)", "torch 2.3", "RuntimeError: unable to open shared memory object </torch_18_1_0> in read-write mode: Too many open files (24)"},
	{"disk-full", "OSError: [Errno 28] No space left on device", "ENOSPC", "12 GB of space left on the device"},
	{"storage-error", "OSError: [Errno 116] Stale file handle: '/fsx/ckpt'", "ESTALE", "file handle 116 closed"},
	{"limits", "OSError: [Errno 24] Too many open files", "EMFILE", "24 open files"},
	{"host-oom", "MemoryError", "Python 3.11", "MemoryErrors: 0 GB"},
	{"nccl-no-interface", "n1:12:34 [0] NCCL WARN Bootstrap : no socket interface found", "NCCL bootstrap.cc", "NCCL INFO Bootstrap : Using eth0:10.2.0.4<0>"},
	{"nccl-watchdog-stuck", "[rank0]:[E1120 ProcessGroupNCCL.cpp:1] [PG ID 0 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=1", "torch 2.3", "heartbeat monitor started"},
	{
		"nccl-timeout", "[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
		"torch 2.5", "NCCL watchdog started",
	},
	{"ib-error", "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)", "NCCL 2.19", "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.2.0.4<0>"},
	{"nccl-remote-error", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.", "NCCL issue 795", "the remote process is ready"},
	{"gloo-peer-lost", "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:58054", "torch 1.13", "Connection closed by peer review"},
	{"store-lost", "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer", "torch 2.3", "setting up the store"},
	{"nccl-error", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ", "NCCL issue 975", "NCCL INFO init.cc:1236 -> 1"},
	{"address-in-use", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "torch 2.6", "address in the log already"},
	{"connection-refused", "ConnectionRefusedError: [Errno 111] Connection refused", "ECONNREFUSED", "refused 3 samples"},
	{"name-resolution", "socket.gaierror: [Errno -3] Temporary failure in name resolution", "EAI_AGAIN", "resolution: 1024"},
	{"hub-busy", "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api", "requests", "too many requests in the queue"},
	{"auth", "OSError: You are trying to access a gated repo.", "huggingface_hub", "the repo is gated by a flag"},
	{"checkpoint-corrupt", "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "torch 2.1", "reading zip archive"},
	{"checkpoint-mismatch", "RuntimeError: Error(s) in loading state_dict for Linear:", "torch 1.13", "loading state_dict"},
	{"ddp-unused-parameters", "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", "reducer.cpp", "finished reduction"},
	{"import-error", "ModuleNotFoundError: No module named 'apex'", "Python 3.11", "No module named apex, using the slow path"},
	{"no-libuv", "RuntimeError: use_libuv was requested but PyTorch was built without libuv support, run with USE_LIBUV=0 to disable it.", "torch 2.6, Debian", "libuv support is on"},
	{"syntax-error", "SyntaxError: '(' was never closed", "Python 3.11", "0 syntax errors"},
	{"usage", "train.py: error: unrecognized arguments: --x", "Python 3.11", "unrecognized samples: 3"},
	{"file-not-found", "FileNotFoundError: [Errno 2] No such file or directory: 'data.bin'", "Python 3.11", "file data.bin found"},
	{"permission", "PermissionError: [Errno 13] Permission denied: '/ckpt'", "Python 3.11", "permission bits 0644"},
	{"assertion", "AssertionError: loss is too large", "Python 3.11", "assertions are on"},
	{"debugger-quit", "bdb.BdbQuit", "Python 3.13", "bdb is there"},
	{"interrupted", "KeyboardInterrupt", "Python 3.11", "keyboard interrupts are ignored"},
}

func TestEveryRuleHasARealSample(t *testing.T) {
	for i, r := range builtin() {
		if i >= len(samples) || samples[i].cause != r.Cause {
			t.Fatalf("rule %d (%s) has no sample at its place", i, r.Cause)
		}
		s := samples[i]
		if s.seen == "" || r.Origin == "" || r.Remedy == "" || r.Title == "" || !valid(r.Action) {
			t.Errorf("%s: something is missing: %+v", r.Cause, r)
		}
		if r.find(s.line) < 0 || r.find(s.miss) >= 0 {
			t.Errorf("%s: matches %q %v, matches %q %v", r.Cause, s.line, r.find(s.line) >= 0, s.miss, r.find(s.miss) >= 0)
		}
	}
	if len(samples) != len(builtin()) {
		t.Errorf("%d samples for %d rules", len(samples), len(builtin()))
	}
}

// TestSamplesAreJudged checks whole verdicts: no earlier rule matches the line, alone or at the end
// of a traceback.
func TestSamplesAreJudged(t *testing.T) {
	for _, s := range samples {
		for _, tail := range []string{s.line, "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    f()\n" + s.line + "\n"} {
			v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: "step 1\nstep 2\n" + tail})
			if v.Cause != s.cause {
				t.Errorf("%q is %s, want %s", tail, v.Cause, s.cause)
			}
			if v.Quote == "" || !strings.Contains(s.line, strings.TrimSuffix(v.Quote, "...")) {
				t.Errorf("%s: quote %q", s.cause, v.Quote)
			}
		}
		if v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: s.miss}); v.Cause == s.cause {
			t.Errorf("%q is %s", s.miss, v.Cause)
		}
	}
}

// TestPatternsBeginWithALiteral checks that each pattern begins with a literal. That makes a scan
// fast, because only texts with the literal are searched.
func TestPatternsBeginWithALiteral(t *testing.T) {
	for _, r := range builtin() {
		for _, p := range r.patterns {
			if lit, _ := p.re().LiteralPrefix(); len(lit) < 8 || len(p.literal) < 3 || !strings.HasPrefix(lit, p.literal) {
				t.Errorf("%s: %s begins with %q, not with %q", r.Cause, p.re(), lit, p.literal)
			}
		}
	}
}
