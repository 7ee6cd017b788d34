"""Runs a function in each of several processes."""

import math
import os
import pickle
import subprocess
import sys
import time

from .. import _cluster, _session
from .._nodes import with_parent
from . import _config, _rank
from ._store import Store

_LONG = 120  # characters of a rank's error that a message shows


class DataParallelTrainer:
    """Runs a function in each of several processes, which report together: the ranks of a golaunch
    job.
    """

    def __init__(self, train_loop_per_worker, *, train_loop_config=None, backend_config=None, scaling_config=None, run_config=None, datasets=None, dataset_config=None,
                 metadata=None, resume_from_checkpoint=None, validation_config=None):
        if datasets or dataset_config:
            raise NotImplementedError("golaunch does not serve datasets; load data in the function, with ray.train.torch.prepare_data_loader")
        if validation_config:
            raise NotImplementedError("golaunch does not serve validation_config; use validation in the function")
        self._backend = backend_config or _config.BackendConfig()
        if not hasattr(self._backend, "_group"):
            raise NotImplementedError(f"golaunch does not serve backend_config={type(self._backend).__name__}; begin what it begins in the function")
        self._function, self._argument = train_loop_per_worker, train_loop_config
        self._scaling, self._run = scaling_config or _config.ScalingConfig(), run_config or _config.RunConfig()
        self._resume_from = resume_from_checkpoint

    def fit(self):
        """Runs a golaunch job, and returns its reports. If the job fails, fit raises
        TrainingFailedError.
        """
        import cloudpickle
        from golaunch.binary import find_binary

        name = self._run.name or time.strftime("ray_train_run-%Y-%m-%d_%H-%M-%S") + f"-{os.getpid()}"
        path = os.path.join(os.path.abspath(os.path.expanduser(self._run.storage_path or "~/ray_results")), name)
        os.makedirs(path, exist_ok=True)
        for left in os.listdir(path):
            if left == "value" or left.startswith("error-"):
                os.remove(os.path.join(path, left))
        argument = self._argument if self._argument is not None else {} if _wants_argument(self._function) else None
        directory = _session.working_dir()
        _rank._leave(path, "function.pickle", pickle.dumps({
            "path": [os.path.abspath(p) for p in sys.path], "directory": directory, "function": cloudpickle.dumps((self._function, argument)), "checkpoints": self._run.checkpoint_config,
            "resume_from": self._resume_from, "gpu": self._scaling.use_gpu, "group": self._backend._group(self._scaling.use_gpu),
        }))
        home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        failures = self._run.failure_config.max_failures
        command = [find_binary(), *_where(self._scaling), "--max-restarts", str(2**31 - 1 if failures < 0 else failures), "--backoff", "0s"]
        if os.environ.get("RAY_preload_python_modules"):
            command += ["--preload", os.environ["RAY_preload_python_modules"]]
        if directory:
            command += ["--workspace", directory]
        flags, own, before = _cluster.variables((self._run.worker_runtime_env or {}).get("env_vars") or {})
        command += flags
        command += ["--", *before, sys.executable, "-c", f"import sys; sys.path.insert(0, {home!r}); from ray.train._rank import main; main({path!r})"]
        code = _run(command, {**os.environ, **own})
        if code != 0:
            raise _failure(path, code)
        with open(os.path.join(path, "value"), "rb") as f:
            value = cloudpickle.load(f)
        return _config.Result(error=None, path=path, return_value=value, **Store(path).result())


def _run(command, env):
    """Runs golaunch, and returns its exit code. If this program is interrupted or ends, the job
    ends too.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, preexec_fn=with_parent)
    try:
        return process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            process.wait()


def _wants_argument(function):
    import inspect

    return len(inspect.signature(function).parameters) > 0


def _where(scaling):
    """The flags that choose the nodes of the job."""
    address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _cluster.address_of_auto()
    each = "--gpus-per-node" if scaling.use_gpu else "--procs-per-node"
    if not address or address == "local":
        return ["--nodes", "1", each, str(scaling.num_workers)]
    address = address[6:] if address.startswith("ray://") else address
    ready = [n for n in _cluster.status(address)["nodes"] if n["state"] == "ready"]
    most = max([n["gpus"] if scaling.use_gpu else _cluster.described(n).get("num_cpus", n["cpus"]) for n in ready], default=1)
    nodes = math.ceil(scaling.num_workers / max(1, most))
    if scaling.num_workers % nodes:
        raise ValueError(f"num_workers={scaling.num_workers}: a multiple of {nodes}, the number of nodes that it takes")
    return ["--coordinator", address, "--strategy", scaling.placement_strategy, "--nodes", str(nodes), each, str(scaling.num_workers // nodes)]


def _failure(path, code):
    """The errors of the ranks of the last attempt."""
    import cloudpickle

    found = {}
    for name in os.listdir(path):
        if name.startswith("error-") and not name.endswith(".new"):
            attempt, rank = map(int, name.split("-")[1:])
            found.setdefault(attempt, {})[rank] = name
    if not found:
        return _config.TrainingFailedError(f"golaunch ended the job with exit code {code}; its words are above, and golaunch explain says more")
    errors = {}
    for rank, name in sorted(found[max(found)].items()):
        with open(os.path.join(path, name), "rb") as f:
            errors[rank] = cloudpickle.load(f)
    first = next(iter(errors))
    error = _config.WorkerGroupError(f"Training failed due to worker errors: rank {first}: {errors[first]!r:.{_LONG}}", errors)
    error.__cause__ = errors[first]
    return error
