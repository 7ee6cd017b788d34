"""Times of Ray's names: python ray_core.py, with golaunch-ray or with Ray itself, prints lines of JSON, each with all figures so far."""

import contextlib
import json
import os
import statistics
import sys
import time

began = time.perf_counter()
os.environ["RAY_CORE"] = MARK = str(os.getpid())  # processes that this program starts have it

import ray  # noqa: E402

ACTORS, CALLS, OBJECTS = 200, 1000, 10_000
figures = {}


def timed(name, do, times=1):
    start = time.perf_counter()
    for _ in range(times):
        do()
    figures[name] = (time.perf_counter() - start) / times


def show():
    """What comes later may fail, or take too long."""
    print(json.dumps({name: round(value, 6) for name, value in figures.items()}), flush=True)


@ray.remote
def nothing():
    pass


@ray.remote(num_cpus=0)
class Actor:
    def nothing(self):
        pass


def memory(pid="self"):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))


def memory_of_all():
    """That of all processes that this program has started, and of their children: some of Ray's write over what marks them."""
    parents, found = {}, set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended
            with open(f"/proc/{pid}/stat") as f:
                parents[pid] = f.read().rpartition(")")[2].split()[1]
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"RAY_CORE={MARK}".encode() in f.read().split(b"\0"):
                    found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    total = 0
    for pid in found:
        with contextlib.suppress(OSError):
            total += memory(pid)
    return total


imported = time.perf_counter()
ray.init(log_to_driver=False, **({} if hasattr(ray, "__golaunch__") else {"include_dashboard": False, "configure_logging": False}))
initialized = time.perf_counter()
ray.get(nothing.remote())
figures["import"], figures["init"] = imported - began, initialized - imported
figures["init_to_first_task"] = time.perf_counter() - imported
ray.get([nothing.remote() for _ in range(100)])
timed("tasks_1000", lambda: ray.get([nothing.remote() for _ in range(CALLS)]))
actor = Actor.remote()
ray.get(actor.nothing.remote())
timed("calls_1000", lambda: ray.get([actor.nothing.remote() for _ in range(CALLS)]))
each = []
for _ in range(CALLS):
    start = time.perf_counter()
    ray.get(actor.nothing.remote())
    each.append(time.perf_counter() - start)
figures["call_and_back"] = statistics.median(each)
before = memory()
kept = [ray.put(i) for i in range(OBJECTS)]
figures["bytes_per_object"] = (memory() - before) / OBJECTS
show()
del kept
actors = []


def ready():
    actors.extend(Actor.remote() for _ in range(ACTORS))
    ray.get([a.nothing.remote() for a in actors])


if "--no-actors" not in sys.argv:
    timed("actors_200", ready)
    figures["actors_200_memory"] = memory_of_all()
    show()
if "--arrays" in sys.argv:  # 1 GiB: put, get by another process, and get on another node, which reads every page
    import numpy

    @ray.remote(num_cpus=0)
    def total(x):
        return int(x[::4096].sum())

    def over(x, node=None):
        return ray.get((total.options(resources={"right": 1}) if node else total).remote(x))

    array, kept = numpy.ones(1 << 30, numpy.uint8), []
    kept.append(ray.put(array[: 1 << 20]))
    over(kept[0])
    timed("put_1gib", lambda: kept.append(ray.put(array)))
    timed("get_1gib", lambda: over(kept[-1]))
    show()
    del kept
    ray.shutdown()
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1, resources={"right": 1})
    ray.init(address=cluster.address, log_to_driver=False)
    kept = [ray.put(array[: 1 << 20]), ray.put(array)]
    over(kept[0], "right")
    timed("get_1gib_from_another_node", lambda: over(kept[1], "right"))
figures["cpus"] = os.cpu_count()
show()
ray.shutdown()
