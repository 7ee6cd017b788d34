"""A program of test_ray.py: tasks of all kinds in a session whose messages are late. Nothing is lost, and all resources are given back."""

import os
import random
import sys
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

LIMIT = 300  # seconds that nothing here takes, unless it hangs: busy machines are slow


@ray.remote(max_retries=20)
def quick(x):
    return x


@ray.remote(resources={"a": 1})
def scarce(x, seconds):
    time.sleep(seconds)
    return x


@ray.remote
def nested(x):
    return sum(ray.get([quick.remote(x), scarce.remote(x, 0.002)], timeout=LIMIT))


@ray.remote(max_retries=20)
def dies(x, path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return x
    os._exit(1)


@ray.remote(num_cpus=0)
class Actor:
    def add(self, x):
        return x + 1


def main(seed, directory):
    dice = random.Random(seed)
    ray.init(num_cpus=2, resources={"a": 1}, runtime_env={"working_dir": directory} if dice.random() < 0.5 else None)
    actors, groups, refs, wants, maybe = [], [], [], [], []
    for x in range(60):
        kind = dice.choice(["quick", "quick", "scarce", "nested", "dies", "cancel", "actor", "group"])
        if kind == "quick":
            refs.append(quick.remote(x))
        elif kind == "scarce":
            refs.append(scarce.remote(x, dice.choice([0, 0.001, 0.02])))
        elif kind == "nested":
            refs.append(nested.remote(x))
        elif kind == "dies":
            refs.append(dies.remote(x, os.path.join(directory, f"died-{x}")))
        elif kind == "cancel":
            maybe.append(dice.choice([quick.remote(x), scarce.remote(x, 0.01), nested.remote(x)]))
            ray.cancel(maybe[-1])
            continue
        elif kind == "actor":
            actors = [*actors[-2:], Actor.remote()]
            refs.append(dice.choice(actors).add.remote(x - 1))
        else:
            groups.append(placement_group([{"CPU": 1}]))
            refs.append(quick.options(scheduling_strategy=PlacementGroupSchedulingStrategy(groups[-1])).remote(x))
            ray.get(refs[-1], timeout=LIMIT)
            remove_placement_group(groups[-1])
        wants.append(2 * x if kind == "nested" else x)
    assert ray.get(refs, timeout=LIMIT) == wants
    for ref in maybe:
        try:
            ray.get(ref, timeout=LIMIT)
        except (ray.exceptions.TaskCancelledError, ray.exceptions.RayTaskError):
            pass
    del actors, refs, maybe
    end = time.monotonic() + LIMIT
    while True:
        free = ray.available_resources()
        if (free.get("CPU"), free.get("a")) == (2, 1):
            break
        assert time.monotonic() < end, f"not given back: {free}"
        time.sleep(0.01)
    print("all is given back")


if __name__ == "__main__":
    import delays  # noqa: F401

    main(*sys.argv[1:])
