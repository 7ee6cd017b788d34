package verdict

import (
	"github.com/golaunch/golaunch/launcher/report"
)

// program has the rules for mistakes in the program, its command line, its installation and its
// files.
var program = []row{
	{
		action: report.ActionStop, cause: "auth", title: "a token or a permission for models or tracking is missing",
		patterns: `
			You are trying to access a gated repo
			Cannot access gated repo for url
			api_key not configured \(no-tty\)`,
		remedy: "give the ranks HF_TOKEN or WANDB_API_KEY (--env), and accept the model's licence", passing: true,
		origin: "huggingface_hub; wandb",
	}, {
		action: report.ActionStop, cause: "checkpoint-corrupt", title: "a checkpoint or a data file is cut off or damaged",
		patterns: `
			PytorchStreamReader failed reading
			SafetensorError: Error while deserializing header
			UnpicklingError: 
			EOFError: Ran out of input`,
		remedy: "remove the newest checkpoint, so that an older one is loaded; check whether its disk was full", passing: true,
		origin: "torch inline_container.cc; safetensors; Python pickle",
	}, {
		action: report.ActionStop, cause: "checkpoint-mismatch", title: "the checkpoint is of another model",
		patterns: `Error\(s\) in loading state_dict for`,
		remedy:   "compare the model's configuration with that of the run that wrote it", passing: true,
		origin: "torch/nn/modules/module.py",
	}, {
		action: report.ActionStop, cause: "ddp-unused-parameters", title: "DDP: parameters took no part in the loss",
		patterns: `Expected to have finished reduction in the prior iteration`,
		remedy:   "find_unused_parameters=True, or use all outputs of forward in the loss", passing: true,
		origin: "torch/csrc/distributed/c10d/reducer.cpp",
	}, {
		action: report.ActionStop, cause: "import-error", title: "a module or a library is missing",
		patterns: `
			ModuleNotFoundError: No module named
			ImportError: 
			error while loading shared libraries:`,
		remedy: "install it on every node, or look at which python and PYTHONPATH the ranks have", passing: true,
		origin: "Python; ld.so(8)",
	}, {
		action: report.ActionStop, cause: "no-libuv", title: "this torch has no libuv, which it asks of a store by default",
		patterns: `use_libuv was requested but PyTorch was built without libuv support`,
		remedy:   "start the job with --store rank0 --env USE_LIBUV=0 (under the torchrun link: GOLAUNCH_STORE=rank0 USE_LIBUV=0)", passing: true,
		origin: "torch/csrc/distributed/c10d/TCPStore.cpp; Debian's builds",
	}, {
		action: report.ActionStop, cause: "syntax-error", title: "Python does not accept the program",
		patterns: `
			SyntaxError: 
			IndentationError: 
			TabError: `,
		remedy: "correct the line; is it the right Python?", passing: true,
		origin: "Python",
	}, {
		action: report.ActionStop, cause: "usage", title: "the program does not accept its arguments",
		patterns: `
			error: unrecognized arguments:
			error: the following arguments are required:
			error: argument [^:\n]{1,80}: invalid`,
		remedy: "correct the command line", passing: true,
		origin: "Python argparse",
	}, {
		action: report.ActionRestart, cause: "file-not-found", title: "a file is not there, or not on that node",
		patterns: `No such file or directory`,
		remedy:   "is the path on a file system that every node has?", passing: true,
		origin: "ENOENT, errno(3)",
	}, {
		action: report.ActionRestart, cause: "permission", title: "a file may not be used",
		patterns: `
			Permission denied
			Operation not permitted`,
		remedy: "look at its owner and mode, and at who runs the agent", passing: true,
		origin: "EACCES and EPERM, errno(3)",
	}, {
		action: report.ActionRestart, cause: "assertion", title: "an assertion of the program failed",
		patterns: `AssertionError\b`,
		remedy:   "read the traceback", passing: true,
		origin: "Python",
	}, {
		action: report.ActionStop, cause: Quit, title: "a user left the debugger, which ends the program",
		patterns: `
			bdb\.BdbQuit
			Quitting pdb will kill the process`,
		remedy: "nothing, if it was meant", passing: true,
		origin: "Python bdb and pdb",
	}, {
		action: report.ActionRestart, cause: "interrupted", title: "a user pressed ^C",
		patterns: `KeyboardInterrupt`,
		remedy:   "nothing, if it was meant", passing: true,
		origin: "Python",
	},
}
