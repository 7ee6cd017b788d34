"""golaunch for Python: one controller calls groups of workers on many nodes.

    from golaunch import VirtualCluster, WorkerGroup

    with VirtualCluster([4, 4]) as cluster:
        group = WorkerGroup(cluster, "trainer:Trainer", lr=0.1)
        losses = group.run_all_workers_single_data("train_step", batch)

docs/groups.md of golaunch describes this package. The package needs nothing except the golaunch
command.
"""

__all__ = [
    "CallCancelled", "DeadlineExceeded", "Executor", "Future", "GPUMemoryError", "GolaunchError", "NamedSharding", "ResultTooLarge", "VirtualCluster", "WorkerFailureError",
    "WorkerGroup", "find_binary",
]

_HOMES = {
    "CallCancelled": "errors", "DeadlineExceeded": "errors", "GPUMemoryError": "errors", "GolaunchError": "errors", "ResultTooLarge": "errors", "WorkerFailureError": "errors",
    "Executor": "executor", "Future": "future", "NamedSharding": "sharding", "VirtualCluster": "cluster", "WorkerGroup": "group", "find_binary": "binary",
}


def __getattr__(name):
    # A worker imports this package too, but needs none of these names.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
