"""Options of remote functions and classes."""

import json
import os

from .util.scheduling_strategies import NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy, PlacementGroupSchedulingStrategy

_COMMON = {
    "num_cpus", "num_gpus", "resources", "memory", "name", "scheduling_strategy", "runtime_env", "accelerator_type", "placement_group",
    "placement_group_bundle_index", "placement_group_capture_child_tasks", "enable_task_events", "_metadata", "label_selector", "object_store_memory",
    "fallback_strategy", "_labels",
}
TASK = _COMMON | {"num_returns", "max_retries", "retry_exceptions", "max_calls", "_generator_backpressure_num_objects"}
ACTOR = _COMMON | {
    "namespace", "get_if_exists", "lifetime", "max_restarts", "max_task_retries", "max_concurrency", "max_pending_calls", "concurrency_groups",
    "allow_out_of_order_execution", "enable_tensor_transport",
}
_UNSERVED = {
    "accelerator_type": "a custom resource (resources={...})", "label_selector": "NodeAffinitySchedulingStrategy or a custom resource", "concurrency_groups": "max_concurrency",
    "fallback_strategy": "NodeAffinitySchedulingStrategy(soft=True)", "max_calls": "a subprocess in the task, for libraries that leak",
    "enable_tensor_transport": "torch.distributed", "_generator_backpressure_num_objects": "several shorter generators",
}
_RUNTIME_ENV = {"env_vars", "working_dir", "py_executable", "pip", "uv", "config", "worker_process_setup_hook"}


def check(options, known, what):
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"Invalid option keyword {name} for {what}. Valid ones are {sorted(n for n in known if not n.startswith('_'))}.")
        if name in _UNSERVED and value not in (None, 0, -1):
            raise NotImplementedError(f"golaunch does not serve the option {name}={value!r}; use {_UNSERVED[name]}")
    for name in ("num_cpus", "num_gpus", "memory"):
        value = options.get(name)
        if value is not None and (not isinstance(value, (int, float)) or value < 0):
            raise ValueError(f"The keyword '{name}' only accepts None, 0 or a positive number, and it is {value!r}")
    gpus = options.get("num_gpus")
    if gpus and gpus > 1 and gpus != int(gpus):
        raise ValueError("GPU quantities >1 must be whole numbers. The specified quantity {'GPU': %s} is invalid." % gpus)
    resources = options.get("resources")
    if resources is not None:
        if not isinstance(resources, dict):
            raise TypeError(f"The type of keyword 'resources' must be a dict, but received type {type(resources)}")
        if "CPU" in resources or "GPU" in resources:
            raise ValueError("Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword")


def wants(options, cpus):
    want = {"CPU": cpus if options.get("num_cpus") is None else options["num_cpus"]}
    if options.get("num_gpus"):
        want["GPU"] = options["num_gpus"]
    if options.get("memory"):
        want["memory"] = options["memory"]
    want.update(options.get("resources") or {})
    return {name: amount for name, amount in want.items() if amount}


def strategy(options):
    """Where a task or an actor runs, as a tuple. A task of a placement group may pass its group on.
    """
    chosen = options.get("scheduling_strategy")
    group = options.get("placement_group", "default")
    if chosen is None and group not in ("default", None):
        if chosen is not None:
            raise ValueError("Placement groups should be specified via the scheduling_strategy option. The placement_group option is deprecated.")
        chosen = PlacementGroupSchedulingStrategy(
            group, options.get("placement_group_bundle_index", -1), options.get("placement_group_capture_child_tasks"))
    if chosen is None:
        captured = _captured()
        return captured if captured and group == "default" else ("default",)
    if chosen == "DEFAULT":
        return ("default",)
    if chosen == "SPREAD":
        return ("spread",)
    if isinstance(chosen, PlacementGroupSchedulingStrategy):
        if chosen.placement_group is None:
            return ("default",)
        index = chosen.placement_group_bundle_index
        if index >= chosen.placement_group.bundle_count or index < -1:
            raise ValueError(f"placement group bundle index {index} is invalid. Valid placement group indexes: 0-{chosen.placement_group.bundle_count - 1}")
        return "group", chosen.placement_group.id.binary(), index, bool(chosen.placement_group_capture_child_tasks)
    if isinstance(chosen, NodeAffinitySchedulingStrategy):
        return "node", chosen.node_id, chosen.soft
    if isinstance(chosen, NodeLabelSchedulingStrategy):
        raise NotImplementedError("golaunch does not serve NodeLabelSchedulingStrategy; use NodeAffinitySchedulingStrategy")
    raise ValueError(f"scheduling_strategy={chosen!r}: 'DEFAULT', 'SPREAD', or one of ray.util.scheduling_strategies")


def _captured():
    from . import _session

    group = _session.group_of_task()
    return ("group", group[1], -1, True) if group is not None and group[3] else None


def with_package(env, package):
    """The environment of a program whose working directory is sent to its processes."""
    env = {"package": package, **{k: v for k, v in env.items() if k not in ("key", "archive")}}
    return {"key": json.dumps(env, sort_keys=True), **env}


def _with_packages(runtime_env):
    """An interpreter for which uv installs packages on the node where it runs."""
    import shlex
    import shutil
    import sys

    wanted = runtime_env.get("pip") or runtime_env.get("uv")
    wanted = wanted.get("packages") if isinstance(wanted, dict) else wanted
    if not isinstance(wanted, list) or any(not isinstance(p, str) for p in wanted):
        raise TypeError("runtime_env['pip'] must be a list of packages, such as ['requests==2.32.0'], or have one as 'packages'")
    if runtime_env.get("py_executable"):
        raise ValueError("runtime_env has 'pip' and 'py_executable': use one of them")
    if shutil.which("uv") is None:
        raise RuntimeError("runtime_env={'pip': ...} needs uv on each node, and it is not here: pip install uv, or name a Python that has the packages in 'py_executable'")
    return shlex.join(["uv", "run", "--quiet", "--no-project", "--python", sys.executable, *(f"--with={p}" for p in wanted), "python"])


def _hook(hook):
    """The function that each process of a program calls first, as text."""
    if isinstance(hook, str):
        return "name", hook
    if not callable(hook):
        raise TypeError(f"runtime_env['worker_process_setup_hook'] must be a function, or its name such as 'module.function', got {type(hook)}")
    import base64

    import cloudpickle

    return "pickle", base64.b64encode(cloudpickle.dumps(hook)).decode()


def environment(runtime_env, of_job=None):
    """The parts of a runtime_env that a process needs."""
    of_job = of_job or {}
    if not runtime_env:
        return of_job or {"key": ""}
    runtime_env = dict(runtime_env)
    for name in runtime_env:
        if name not in _RUNTIME_ENV and runtime_env[name]:
            raise NotImplementedError(f"golaunch does not serve runtime_env={{{name!r}: ...}}; use py_executable with an environment that has what you need")
    variables = runtime_env.get("env_vars") or {}
    if not isinstance(variables, dict) or any(not isinstance(k, str) or not isinstance(v, str) for k, v in variables.items()):
        raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {variables!r}")
    env = {
        "env_vars": {**(of_job.get("env_vars") or {}), **variables}, "working_dir": runtime_env.get("working_dir") or of_job.get("working_dir"),
        "py_executable": runtime_env.get("py_executable") or of_job.get("py_executable"),
    }
    hook = runtime_env.get("worker_process_setup_hook")
    if hook or of_job.get("hook"):
        env["hook"] = _hook(hook) if hook else of_job["hook"]
    if runtime_env.get("pip") or runtime_env.get("uv"):
        env["py_executable"] = _with_packages(runtime_env)
    if of_job.get("package") and not runtime_env.get("working_dir"):
        env["package"] = of_job["package"]
    elif env["working_dir"]:
        if "://" in env["working_dir"]:
            raise NotImplementedError(f"golaunch does not fetch a working_dir such as {env['working_dir']}; name a directory")
        env["working_dir"] = os.path.abspath(env["working_dir"])
        if not os.path.isdir(env["working_dir"]):
            raise ValueError(f"directory {env['working_dir']} must be an existing directory")
    return {"key": json.dumps(env, sort_keys=True), **env}
