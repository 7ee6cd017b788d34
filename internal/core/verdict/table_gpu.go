package verdict

import (
	"github.com/golaunch/golaunch/launcher/report"
)

// The tables are in the order in which rules are tried: specific rules before general ones.

// hardware has the rules for faults of a GPU, its links or its node. NVIDIA's documentation says
// which Xids are such faults. There is no rule for Xids 13, 31, 43, 45, 68 and 109, because they
// are faults of the program or follow a job's end (k8s-device-plugin ignores them too). There is
// none for Xids 63 and 94, because they are errors that the GPU has contained.
var hardware = []row{
	{
		action: report.ActionReplace, cause: "gpu-lost", title: "a GPU is gone from the bus",
		patterns: `
			NVRM: Xid \(PCI:[^)\n]{1,20}\): 79\b
			GPU has fallen off the bus
			GPU is lost\.`,
		remedy: "drain the node; it needs a reboot, and a repair when it comes again",
		origin: "NVIDIA driver; docs.nvidia.com/deploy/xid-errors",
	}, {
		action: report.ActionReplace, cause: "ecc-uncorrectable", title: "GPU memory has an error that ECC cannot correct",
		patterns: `
			NVRM: Xid \(PCI:[^)\n]{1,20}\): (48|64|95|140)\b
			uncorrectable ECC error encountered`,
		remedy: "reset the GPU; nvidia-smi -q -d ROW_REMAPPER,ECC says whether it must be replaced",
		origin: "NVIDIA driver; CUDA cudaErrorECCUncorrectable; docs.nvidia.com/deploy/xid-errors",
	}, {
		action: report.ActionReplace, cause: "nvlink-error", title: "NVLink, or the memory behind it, fails",
		patterns: `
			NVRM: Xid \(PCI:[^)\n]{1,20}\): 74\b
			Invalid access of peer GPU memory over nvlink or a hardware error
			uncorrectable NVLink error detected`,
		remedy: "nvidia-smi nvlink -s shows the links of the node; reset its GPUs",
		origin: "NVIDIA driver; CUDA runtime; docs.nvidia.com/deploy/xid-errors",
	}, {
		action: report.ActionReplace, cause: "gpu-fault", title: "a GPU or its firmware has stopped",
		patterns: `NVRM: Xid \(PCI:[^)\n]{1,20}\): (46|62|119|120)\b`,
		remedy:   "drain the node and reset the GPU",
		origin:   "NVIDIA driver; docs.nvidia.com/deploy/xid-errors",
	}, {
		action: report.ActionReplace, cause: "gpu-fabric-down", title: "the node's NVSwitch fabric is not up",
		patterns: `
			Error 802: system not yet initialized
			CUDA error: system not yet initialized`,
		remedy: "systemctl status nvidia-fabricmanager on the node; its version must be the driver's",
		origin: "CUDA error 802, cudaErrorSystemNotReady",
	}, {
		action: report.ActionReplace, cause: "node-failure", title: "the scheduler has lost the node",
		patterns: `DUE TO NODE FAILURE, SEE SLURMCTLD LOG`,
		remedy:   "nothing, if a spare is there",
		origin:   "Slurm slurmstepd",
	},
}

// gpu has the rules for failures of CUDA that are not known to be hardware faults, and for losses
// and gradients that are not numbers.
var gpu = []row{
	{
		action: report.ActionStop, cause: "cuda-oom", title: "the GPU's memory is full",
		patterns: `
			CUDA out of memory
			CUDA error: out of memory
			CUBLAS_STATUS_ALLOC_FAILED
			Cuda failure 2 'out of memory'
			Failed to CUDA calloc
			HIP out of memory
			RESOURCE_EXHAUSTED: Out of memory`,
		remedy: "use a smaller batch or sequence, shard or recompute more; nvidia-smi shows whether another process holds memory",
		origin: "torch CUDACachingAllocator.cpp; cuBLAS; NCCL alloc.h; XLA",
	}, {
		action: report.ActionWait, cause: "gpu-busy", title: "another process has the GPU for itself",
		patterns: `
			CUDA-capable device\(s\) is/are busy or unavailable
			all CUDA-capable devices are busy or unavailable`,
		remedy: "nvidia-smi shows who holds it, and whether its compute mode is exclusive",
		origin: "CUDA cudaErrorDevicesUnavailable",
	}, {
		action: report.ActionStop, cause: "driver-too-old", title: "the driver is older than the program's CUDA",
		patterns: `
			CUDA driver version is insufficient for CUDA runtime version
			The NVIDIA driver on your system is too old`,
		remedy: "install a newer driver, or a torch that is built for this one",
		origin: "CUDA cudaErrorInsufficientDriver; torch/cuda",
	}, {
		action: report.ActionStop, cause: "gpu-unsupported", title: "nothing in the program is built for this GPU",
		patterns: `
			no kernel image is available for execution on the device
			Torch not compiled with CUDA enabled`,
		remedy: "install a torch that is built with CUDA for this GPU",
		origin: "CUDA cudaErrorNoKernelImageForDevice; torch/cuda",
	}, {
		action: report.ActionStop, cause: "gpu-index", title: "the program takes a GPU that it does not have, or one twice",
		patterns: `
			CUDA error: invalid device ordinal
			Duplicate GPU detected : rank`,
		remedy: "use cuda:LOCAL_RANK, or cuda:0 with --gpu-visibility own; between ranks that share a GPU use gloo",
		origin: "CUDA cudaErrorInvalidDevice; NCCL init.cc",
	}, {
		action: report.ActionRestart, cause: "no-gpu", title: "the program sees no GPU",
		patterns: `
			No CUDA GPUs are available
			no CUDA-capable device is detected`,
		remedy: "look at CUDA_VISIBLE_DEVICES and at nvidia-smi on the node", passing: true,
		origin: "torch/csrc/cuda; CUDA cudaErrorNoDevice",
	}, {
		action: report.ActionRestart, cause: "device-assert", title: "an assertion in a GPU kernel failed, often an index out of range",
		patterns: `CUDA error: device-side assert triggered`,
		remedy:   "run once with CUDA_LAUNCH_BLOCKING=1 to see which; check token ids and labels",
		origin:   "CUDA cudaErrorAssert",
	}, {
		action: report.ActionRestart, cause: "illegal-memory-access", title: "a GPU kernel used memory that is not its own",
		patterns: `
			an illegal memory access was encountered
			CUDA error: misaligned address`,
		remedy: "find the kernel with compute-sanitizer; if it fails on one node alone, suspect its GPU",
		origin: "CUDA cudaErrorIllegalAddress",
	}, {
		action: report.ActionRestart, cause: "cuda-error", title: "CUDA failed",
		patterns: `
			CUDA error: unspecified launch failure
			CUDA error: unknown error
			CUDA error: CUBLAS_STATUS_
			cuDNN error: CUDNN_STATUS_
			ncclUnhandledCudaError: Call to CUDA function`,
		remedy: "look for Xid in the kernel's log of the node; run once with CUDA_LAUNCH_BLOCKING=1",
		origin: "CUDA runtime; cuBLAS; cuDNN; torch NCCLUtils.cpp",
	}, {
		action: report.ActionStop, cause: "nan-loss", title: "the loss or a gradient is not a number",
		patterns: `
			found NaN in local grad norm
			found Inf in local grad norm
			Current loss scale already at minimum - cannot decrease
			returned nan values in its \d+th output`,
		remedy: "go back to an earlier checkpoint and skip the data, or lower the learning rate",
		origin: "Megatron-LM param_and_grad_buffer.py; DeepSpeed loss_scaler.py; torch anomaly mode",
	},
}
