"""ray.get, ray.put and the other functions of the module."""

import inspect
import json

from . import _session
from ._generator import ObjectRefGenerator
from ._objects import ObjectRef
from .actor import ActorClass, ActorHandle, actor_class
from .remote_function import RemoteFunction


def remote(*args, **options):
    """@ray.remote, @ray.remote(num_cpus=2), ray.remote(Class)."""
    if len(args) == 1 and not options and callable(args[0]):
        return _made(args[0], {})
    if args or not options:
        raise ValueError("The @ray.remote decorator must be applied either with no arguments and no parentheses, for example '@ray.remote', or it must be applied using "
                         "some of the arguments in the list, for example '@ray.remote(num_returns=2, resources={\"CustomResource\": 1})'.")
    return lambda what: _made(what, options)


def _made(what, options):
    if inspect.isclass(what):
        return actor_class(what, options)
    if isinstance(what, (ActorClass, RemoteFunction)):
        raise TypeError(f"{what!r} is remote already")
    if not callable(what):
        raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
    return RemoteFunction(what, options)


def get(object_refs, *, timeout=None, _use_object_store=False):
    """The value of a reference, or the values of a list of references."""
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if isinstance(object_refs, ObjectRef):
        _same_cluster([object_refs])
        return object_refs._core.get([object_refs], timeout)[0]
    if not isinstance(object_refs, list):
        raise ValueError(f"Invalid type of object refs, {type(object_refs)}, is given. 'object_refs' must either be an ObjectRef or a list of ObjectRefs. ")
    for ref in object_refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"Attempting to call `get` on the value {ref}, which is not an ray.ObjectRef.")
    if not object_refs:
        return []
    _same_cluster(object_refs)
    return object_refs[0]._core.get(object_refs, timeout)


def _same_cluster(refs):
    core = refs[0]._core
    core.alive()
    for ref in refs:
        if ref._core is not core:
            ref._core.alive()


def put(value, *, _owner=None, _tensor_transport=None):
    """Stores a value, and returns a reference to it."""
    if _owner is not None:
        raise NotImplementedError("golaunch does not serve ray.put(_owner=...); have that actor put it")
    return _session.core().put(value)


def wait(ray_waitables, *, num_returns=1, timeout=None, fetch_local=True):
    """Two lists of references: the first has at most num_returns that are ready, the second has all
    others.
    """
    refs = ray_waitables
    if isinstance(refs, ObjectRef):
        raise TypeError("wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got a single ray.ObjectRef")
    if not isinstance(refs, list):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got {type(refs)}")
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    for ref in refs:
        if isinstance(ref, ObjectRefGenerator):
            raise NotImplementedError("golaunch does not serve ray.wait of an ObjectRefGenerator; iterate over it")
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing {type(ref)}")
    if not refs:
        return [], []
    if len(set(refs)) != len(refs):
        raise ValueError("Wait requires a list of unique ray_waitables.")
    if num_returns <= 0:
        raise ValueError("Invalid number of ray_waitables to return %d." % num_returns)
    if num_returns > len(refs):
        raise ValueError("num_returns cannot be greater than the number of ray_waitables provided to ray.wait.")
    _same_cluster(refs)
    return refs[0]._core.wait(refs, num_returns, timeout)


def cancel(ray_waitable, *, force=False, recursive=True):
    """Cancels a task. A running task is interrupted; with force, its process is killed."""
    if not isinstance(ray_waitable, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"ray.cancel() only supported for object refs. For actors, try ray.kill. Got: {type(ray_waitable)}.")
    ray_waitable._core.cancel(ray_waitable, force, recursive)


def kill(actor, *, no_restart=True):
    """Kills an actor."""
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}.")
    core = actor._core
    core.alive()
    core.ask(core.head, "kill", actor._link.id, no_restart)


def is_initialized():
    return _session.initialized()


def _nodes():
    core = _session.core()
    core.alive()
    return core.ask(core.head, "nodes")[0]


def nodes():
    """The nodes of the cluster."""
    return [{
        "NodeID": n["id"], "Alive": n["alive"], "NodeManagerAddress": n["address"][2], "NodeManagerHostname": n["hostname"], "NodeManagerPort": n["address"][3],
        "ObjectManagerPort": n["address"][3], "ObjectStoreSocketName": "", "RayletSocketName": n["address"][0], "MetricsExportPort": -1, "MetricsAgentPort": -1,
        "DashboardAgentListenPort": -1, "NodeName": n["address"][2], "RuntimeEnvAgentPort": -1, "DeathReason": 0 if n["alive"] else 2, "DeathReasonMessage": n["why"],
        "alive": n["alive"], "Resources": n["total"] if n["alive"] else {}, "Labels": {"ray.io/node-id": n["id"], **n["labels"]},
    } for n in _nodes()]


def _sum(key):
    total = {}
    for n in _nodes():
        if n["alive"]:
            for name, amount in n[key].items():
                total[name] = round(total.get(name, 0) + amount, 4)
    return {name: amount for name, amount in total.items() if amount > 0}


def cluster_resources():
    """The resources that the nodes have, by the resource's name."""
    return _sum("total")


def available_resources():
    """The resources of the nodes that are free, by the resource's name."""
    return _sum("free")


def get_gpu_ids():
    """The GPUs of this task or actor."""
    executor = _session.core().executor
    return [g[0] for g in executor.gpus] if executor is not None else []


def timeline(filename=None):
    """The finished tasks as the events of a Chrome trace, or a file with these events."""
    from ._history import trace

    core = _session.core()
    events = trace(core.ask(core.head, "tasks")[0][0])
    if filename is None:
        return events
    with open(filename, "w") as f:
        json.dump(events, f)
