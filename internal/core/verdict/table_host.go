package verdict

import (
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	hostMemory   = "give the job more memory, or take fewer DataLoader workers and less prefetching"
	sharedMemory = "make /dev/shm larger (docker --shm-size or --ipc=host, a memory emptyDir), or take fewer DataLoader workers"
)

// sharedMemoryFull is a cause that [Judge] also finds in the traceback, because Python's own error
// for a semaphore in /dev/shm names no file.
const sharedMemoryFull = "shm-full"

// host has the rules for failures of the machine's memory, files and limits, and for ends by a
// scheduler.
var host = []row{
	{
		action: report.ActionWait, cause: "preempted", title: "the scheduler took the nodes for another job",
		patterns: `DUE TO PREEMPTION \*\*\*`,
		remedy:   "requeue it (sbatch --requeue)",
		origin:   "Slurm slurmstepd",
	}, {
		action: report.ActionWait, cause: "time-limit", title: "the scheduler's time limit is over",
		patterns: `DUE TO TIME LIMIT \*\*\*`,
		remedy:   "ask for more time (--time), or requeue it",
		origin:   "Slurm slurmstepd",
	}, {
		action: report.ActionRestart, cause: "bus-error", title: "an access to mapped memory that is gone, often because /dev/shm is full",
		patterns: `
			ERROR: Unexpected bus error encountered in worker
			is killed by signal: Bus error
			Fatal Python error: Bus error`,
		remedy: sharedMemory,
		origin: "torch/csrc/DataLoader.cpp; Python faulthandler",
	}, {
		action: report.ActionRestart, cause: "host-oom", title: "the machine's memory, or the job's share of it, is used up",
		patterns: `
			Detected \d+ oom[_-]kill event
			Out of memory: Killed process
			Memory cgroup out of memory: Killed process
			DefaultCPUAllocator: can't allocate memory
			DefaultCPUAllocator: not enough memory
			std::bad_alloc`,
		remedy: hostMemory,
		origin: "Slurm slurmstepd; Linux mm/oom_kill.c; torch alloc_cpu.cpp; libstdc++",
	}, {
		action: report.ActionRestart, cause: "dataloader-worker-killed", title: "a DataLoader worker died, often for lack of memory",
		patterns: `DataLoader worker \(pid(\(s\))? [0-9, ]+\) (is killed by signal|exited unexpectedly)`,
		remedy:   hostMemory,
		origin:   "torch/utils/data/dataloader.py; torch/csrc/DataLoader.cpp",
	}, {
		action: report.ActionRestart, cause: "segfault", title: "invalid memory access in native code",
		patterns: `
			Fatal Python error: Segmentation fault
			ERROR: Unexpected segmentation fault encountered in worker`,
		remedy: "the Python stack below it says where; look for mixed library versions",
		origin: "Python faulthandler; torch/csrc/DataLoader.cpp",
	}, {
		action: report.ActionRestart, cause: sharedMemoryFull, title: "shared memory (/dev/shm) is full",
		patterns: `
			/dev/shm/[^\n]{0,200}No space left on device
			No space left on device[^\n]{0,80}/dev/shm
			</torch_[^\n]{0,200}No space left on device
			Error while creating shared memory segment /dev/shm/`,
		remedy: sharedMemory, passing: true,
		origin: "ENOSPC below /dev/shm: Python; torch MapAllocator.cpp; NCCL shmutils.cc",
	}, {
		action: report.ActionWait, cause: "disk-full", title: "a disk or a quota is full",
		patterns: `
			No space left on device
			Disk quota exceeded
			No usable temporary directory found in`,
		remedy: "free some of it, keep fewer checkpoints, or give temporary files another place (TMPDIR)", passing: true,
		origin: "ENOSPC and EDQUOT, errno(3); Python tempfile",
	}, {
		action: report.ActionWait, cause: "storage-error", title: "a file system fails",
		patterns: `
			Stale file handle
			Input/output error
			Transport endpoint is not connected
			Read-only file system`,
		remedy: "look at the mount on that node and at its server", passing: true,
		origin: "ESTALE, EIO, ENOTCONN and EROFS, errno(3)",
	}, {
		action: report.ActionRestart, cause: "limits", title: "a limit on files, threads or processes is reached",
		patterns: `
			Too many open files
			received 0 items of ancdata
			can't start new thread`,
		remedy: "raise ulimit -n or -u, or torch.multiprocessing.set_sharing_strategy('file_system')", passing: true,
		origin: "EMFILE, errno(3); Python multiprocessing and threading",
	}, {
		action: report.ActionRestart, cause: "host-oom", title: "the machine's memory, or the job's share of it, is used up",
		patterns: `
			MemoryError\b
			Cannot allocate memory`,
		remedy: hostMemory, passing: true,
		origin: "Python; ENOMEM, errno(3)",
	},
}

// fabric has the rules for lines that ranks write when the connection to another rank fails, mostly
// because the other rank has failed.
var fabric = []row{
	{
		action: report.ActionStop, cause: "nccl-no-interface", title: "NCCL finds no network interface to use",
		patterns: `Bootstrap : no socket interface found`,
		remedy:   "set NCCL_SOCKET_IFNAME; golaunch plan --explain shows what it is set to",
		origin:   "NCCL bootstrap.cc",
	}, {
		action: report.ActionRestart, cause: "nccl-watchdog-stuck", title: "NCCL's watchdog thread was blocked",
		patterns: `Heartbeat monitor timed out!`,
		remedy:   "look for a CUDA call or the GIL that hangs on this rank; TORCH_NCCL_TRACE_BUFFER_SIZE records the last collectives",
		origin:   "torch ProcessGroupNCCL.cpp",
	}, {
		action: report.ActionRestart, cause: "nccl-timeout", title: "a collective did not end in time: another rank never came to it",
		patterns: `
			Watchdog caught collective operation timeout
			Received a dump signal due to a collective timeout
			Some NCCL operations have failed or timed out`,
		remedy: "look for the rank that is missing in the collective: it failed, hangs, or took another path", victim: true,
		origin: "torch ProcessGroupNCCL.cpp",
	}, {
		action: report.ActionRestart, cause: "ib-error", title: "a transfer over InfiniBand or RoCE failed: the link, or the rank at its other end",
		patterns: `NET/IB : Got completion from peer`,
		remedy:   "if no other rank has failed: ibstat, and the port's error counters, on both nodes", victim: true,
		origin: "NCCL net_ib.cc",
	}, {
		action: report.ActionRestart, cause: "nccl-remote-error", title: "NCCL lost the connection to another rank",
		patterns: `
			ncclRemoteError: A call failed
			remote process exited or there was a network error
			Connection closed by remote peer`,
		remedy: "look at the rank at the other end; if it did not fail, at the network between them", victim: true,
		origin: "torch NCCLUtils.cpp; NCCL socket.cc",
	}, {
		action: report.ActionRestart, cause: "gloo-peer-lost", title: "gloo lost the connection to another rank",
		patterns: `
			Connection closed by peer \[
			Read error \[[^\]\n]*\]:\d+: Connection reset by peer
			Timed out waiting \d+ms for (recv|send) operation`,
		remedy: "look at the rank at the other end", victim: true,
		origin: "gloo transport/tcp/pair.cc",
	}, {
		action: report.ActionRestart, cause: "store-lost", title: "torch's store, or the rank that should have written to it, is gone",
		patterns: `
			is setting up NCCL communicator and retrieving ncclUniqueId
			The client socket has timed out after
			Failed to recv, got 0 bytes
			failed to recv, got 0 bytes`,
		remedy: "look at rank 0, and at what serves MASTER_ADDR:MASTER_PORT", victim: true,
		origin: "torch ProcessGroupNCCL.cpp, socket.cpp and TCPStore",
	}, {
		action: report.ActionRestart, cause: "nccl-error", title: "NCCL failed",
		patterns: `
			ncclSystemError: System call
			ncclInternalError: Internal check failed
			ncclInvalidUsage: This usually reflects`,
		remedy: "run once with NCCL_DEBUG=INFO and read its lines", passing: true,
		origin: "torch NCCLUtils.cpp",
	}, {
		action: report.ActionRestart, cause: "address-in-use", title: "another process has the port",
		patterns: `
			EADDRINUSE
			Address already in use`,
		remedy: "let the program take MASTER_PORT, or port 0; ss -ltnp shows who has it", passing: true,
		origin: "EADDRINUSE, errno(3); torch socket.cpp",
	}, {
		action: report.ActionRestart, cause: "connection-refused", title: "no program listens where this one connects",
		patterns: `Connection refused`,
		remedy:   "look at the service at that address", passing: true,
		origin: "ECONNREFUSED, errno(3)",
	}, {
		action: report.ActionWait, cause: "name-resolution", title: "a name could not be resolved for now",
		patterns: `Temporary failure in name resolution`,
		remedy:   "look at /etc/resolv.conf and at the name server", passing: true,
		origin: "EAI_AGAIN, gai_strerror(3)",
	}, {
		action: report.ActionWait, cause: "hub-busy", title: "a server of models or data refuses for now",
		patterns: `
			Client Error: Too Many Requests for url
			Server Error: [A-Za-z ]{1,40} for url`,
		remedy: "download it once before the job, and set HF_HUB_OFFLINE=1", passing: true,
		origin: "Python requests, Response.raise_for_status",
	},
}
