package health

// Problems of GPUs.
var (
	gpuDriver = Warnable{
		"gpu-driver", "The NVIDIA driver does not work", Error,
		"the driver is installed, but lists no GPUs: it is wedged, mismatched or broken, or takes more than 10 s",
		"run nvidia-smi, look for Xid in dmesg, set persistence mode (nvidia-smi -pm 1), and reload the driver or reboot",
	}
	gpuLost = Warnable{
		"gpu-lost", "A GPU is lost", Error,
		"the driver calls a GPU lost, or it has fallen off the PCI bus: its configuration space reads as ones",
		"take the node out; reset the GPU (nvidia-smi --gpu-reset) or power the machine off and on, and replace the GPU if it is lost again",
	}
	gpuECC = Warnable{
		"gpu-ecc", "Memory errors of a GPU were not corrected", Error,
		"more than 0 uncorrected ECC errors since the driver was loaded (DCGM drains a node for one)",
		"stop all processes that use the GPU and reset it (nvidia-smi --gpu-reset); replace it if the errors come back",
	}
	gpuRowRemap = Warnable{
		"gpu-row-remap", "A GPU has no spare row for bad memory", Error,
		"the driver reports a row remapping failure (NVIDIA's criterion for replacement)",
		"replace the GPU",
	}
	gpuRowPending = Warnable{
		"gpu-row-pending", "A GPU's bad memory is remapped at its next reset", Warning,
		"the driver reports a pending row remapping",
		"reset the GPU (nvidia-smi --gpu-reset) when nothing uses it",
	}
	gpuRecovery = Warnable{
		"gpu-recovery", "The driver wants a GPU recovered", Error,
		"the driver's GPU recovery action is not none (R570 and later)",
		"take the node out and do what the driver asks for",
	}
	gpuXid = Warnable{
		"gpu-xid", "The kernel log has a fatal Xid", Warning,
		"since boot, one of the Xids 46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143; needs the right to read the kernel log",
		"look it up at docs.nvidia.com/deploy/xid-errors; ignore it if the GPU was reset since",
	}
	gpuThrottled = Warnable{
		"gpu-throttled", "A GPU is held back by heat or power", Warning,
		"clocks are held down by a thermal slowdown, a hardware slowdown or the power brake at the time",
		"check fans, inlet temperature and power supplies: all ranks wait for the slowest GPU",
	}
	gpuPCIeWidth = Warnable{
		"gpu-pcie-width", "A GPU's PCIe link is narrower than it could be", Warning,
		"fewer lanes than GPU and slot both have",
		"reseat the GPU or its riser; a reboot may train the link anew",
	}
	nvLinkDown = Warnable{
		"nvlink-down", "NVLinks are down", Warning,
		"a GPU has links that are not active, and other GPUs of its kind on the machine have fewer such links",
		"run nvidia-smi nvlink -s; reset all GPUs of the machine, and have the GPU or its bridge inspected",
	}
	fabricManager = Warnable{
		"fabric-manager", "A GPU is not in the NVSwitch fabric", Error,
		"the GPU's registration with the fabric is not completed: CUDA fails with error 802 until it is",
		"start nvidia-fabricmanager, in the version of the driver, and look at its log",
	}
	cudaVisibleDevices = Warnable{
		"cuda-visible-devices", "CUDA_VISIBLE_DEVICES names GPUs that do not exist", Warning,
		"an entry names no GPU, or the same GPU again: CUDA then ignores this entry and all later ones, or all entries",
		"unset it, or name GPUs that nvidia-smi -L lists",
	}
)

// Problems of RDMA.
var (
	noPeermem = Warnable{
		"no-peermem", "NICs cannot reach GPU memory", Warning,
		"GPUs and InfiniBand or RoCE, and neither nvidia_peermem is loaded nor the driver's open kernel modules on Linux 5.12 or later (DMA-BUF)",
		"modprobe nvidia_peermem: without it, traffic between nodes goes through host memory",
	}
	hcaDown = Warnable{
		"hca-down", "An RDMA device has no active port", Warning,
		"none of its ports is ACTIVE in /sys/class/infiniband",
		"check cable, switch and ibstat; if it is meant to be unused, leave it out with NCCL_IB_HCA",
	}
	memlock = Warnable{
		"memlock", "Too little memory may be locked for RDMA", Error,
		"RDMA devices, the limit of locked memory below 1 GiB, and no CAP_IPC_LOCK",
		"raise it to unlimited: docker run --ulimit memlock=-1, LimitMEMLOCK=infinity for systemd, PropagateResourceLimitsExcept=MEMLOCK for Slurm",
	}
)

// Problems of the machine.
var (
	noFile = Warnable{
		"nofile", "Few files may be open", Warning,
		"hard limit of open files below 4096, which is the kernel's own default",
		"raise it: ulimit -Hn, docker run --ulimit nofile=1048576, or LimitNOFILE= for systemd",
	}
	noProc = Warnable{
		"nproc", "Few processes may run", Warning,
		"limit of the user's processes and threads, or pids.max of the cgroup, below 4096: eight ranks with data loaders need as many",
		"raise it: ulimit -u, docker run --pids-limit, TasksMax= for systemd",
	}
	noCgroup = Warnable{
		"no-cgroup", "Processes of ranks may outlive a golaunch that is killed", Warning,
		"no cgroup v2 that golaunch may write to, or Linux before 5.14: a process in a session of its own with an empty environment is ended with " +
			"its rank, but not by kill -9 of golaunch; and golaunch lists /proc each time that it measures or ends ranks, which takes 1 to 4 ms for 1,000 " +
			"processes of the machine; asked by golaunch doctor, golaunch agent and jobs on one machine",
		"Delegate=yes for a systemd unit; systemd-run --user --scope -p Delegate=yes golaunch ... for a command; in a container, a /sys/fs/cgroup " +
			"that is not read-only",
	}
	shmSmall = Warnable{
		"shm-small", "/dev/shm is small or full", Warning,
		"GPUs, and /dev/shm is smaller than 1 GiB (what NVIDIA starts its containers with) or has less than 256 MiB free",
		"docker run --shm-size=1g or --ipc=host, or an emptyDir of medium Memory for Kubernetes; remove what dead jobs left there",
	}
	diskFull = Warnable{
		"disk-full", "A disk is nearly full", Warning,
		"less than 1 GiB, or less than 1000 files, free in the temporary directory or the one for logs",
		"make room, or choose another directory with TMPDIR or --log-dir",
	}
	tmpNoExec = Warnable{
		"tmp-noexec", "Nothing in the temporary directory can be executed", Warning,
		"GPUs, and it is mounted noexec: torch.compile and torch.utils.cpp_extension load libraries from there",
		"set TMPDIR, or TORCHINDUCTOR_CACHE_DIR, to a directory on another mount",
	}
	clockOffset = Warnable{
		"clock-offset", "The clock is not synchronized", Warning,
		"RDMA devices, and the kernel says that the clock is unsynchronized, or off by up to 1 s or more (adjtimex)",
		"start chrony or another NTP client: times in logs of different nodes cannot be compared",
	}
)

// Problems of communication, which golaunch doctor --fabric finds (cmd/golaunch/internal/fabric).
var (
	fabricSilent = Warnable{
		"fabric-silent", "A node does not answer", Error,
		"its part of the check has not begun within 10 s, or has not answered 2 s after the limit of a test",
		"check that the machine is up and golaunch runs on it, or leave the node out",
	}
	fabricNCCL = Warnable{
		"fabric-nccl", "NCCL or CUDA does not work on a node", Error,
		"libnccl.so.2 or libcuda.so.1 cannot be loaded, is broken or too old, hangs, or the driver does not give out a GPU",
		"name a libnccl.so.2 with --libnccl, or put its directory into LD_LIBRARY_PATH; run nvidia-smi on the node",
	}
	fabricNode = Warnable{
		"fabric-node", "A node fails by itself", Error,
		"an all-reduce over the node's own GPUs fails, hangs or has a wrong sum; without GPUs, its own address does not answer",
		"run it on the node alone with NCCL_DEBUG=INFO; look for Xid in dmesg, and at NVLink and /dev/shm; without GPUs, at its firewall",
	}
	fabricNIC = Warnable{
		"fabric-nic", "A node fails with other nodes", Error,
		"a test with a node that is good with others fails or hangs, while the node works by itself",
		"take the node out; look at its NICs and cables (ibstat, ethtool), MTU, firewall and NCCL_SOCKET_IFNAME or NCCL_IB_HCA",
	}
	fabricSuspect = Warnable{
		"fabric-suspect", "Nodes fail together", Error,
		"a test of two nodes fails or hangs, and no node that is proven good can show which of them is faulty",
		"check again with more nodes; if many fail, look at what they share: firewall, MTU, switch, NCCL_SOCKET_IFNAME",
	}
	fabricPath = Warnable{
		"fabric-path", "Two nodes do not reach each other", Error,
		"their test fails or hangs, while each of them works with other nodes",
		"check what is between the two: routes, switches, firewall rules",
	}
	fabricSlow = Warnable{
		"fabric-slow", "A node is slow", Warning,
		"less than half the usual bandwidth (the upper quartile of all tests) by itself or with a good node; not with --simulate",
		"look at link speed and errors (ethtool, ibstat, nvidia-smi nvlink -s) and PCIe width: all ranks wait for the slowest",
	}
)

// Differences between nodes. Versions are compared as text.
var (
	gpuSkew       = skew("gpu-skew", "Nodes have different GPUs", "the number of GPUs, or their kind", "take out the node that lost a GPU")
	driverSkew    = skew("driver-skew", "Nodes have different NVIDIA drivers", "/proc/driver/nvidia/version", "install one driver")
	kernelSkew    = skew("kernel-skew", "Nodes have different kernels", "uname -r", "boot one kernel")
	ncclSkew      = skew("nccl-skew", "Nodes have different NCCLs", "the system's libnccl.so.2, by its file name", "install one NCCL; between versions it may hang")
	libfabricSkew = skew("libfabric-skew", "Nodes have different libfabrics or EFA software",
		"libfabric.so.1 by its file name, and EFA's installer", "install one version of EFA's software")
	pythonSkew = skew("python-skew", "Nodes have different Python environments",
		"python3 in PATH, VIRTUAL_ENV and CONDA_PREFIX", "activate one environment, at the same path, on every node")
)

func skew(code, title, what, remedy string) Warnable {
	return Warnable{code, title, Warning, "not the same on all nodes: " + what, remedy}
}

// Table has every Warnable.
var Table = []Warnable{
	gpuDriver, gpuLost, gpuECC, gpuRowRemap, gpuRowPending, gpuRecovery, gpuXid, gpuThrottled, gpuPCIeWidth, nvLinkDown, fabricManager,
	cudaVisibleDevices, noPeermem, hcaDown, memlock, noFile, noProc, noCgroup, shmSmall, diskFull, tmpNoExec, clockOffset,
	fabricSilent, fabricNCCL, fabricNode, fabricNIC, fabricSuspect, fabricPath, fabricSlow,
	gpuSkew, driverSkew, kernelSkew, ncclSkew, libfabricSkew, pythonSkew,
}
