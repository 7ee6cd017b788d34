"""Workers on a running Ray cluster: they are placed together, and each answers once.

    ray_workers.py RANKS
"""
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ranks = int(sys.argv[1])


@ray.remote(num_cpus=1)
class Worker:
    def answer(self, i):
        return i


ray.init(log_to_driver=False, logging_level="ERROR")
group = placement_group([{"CPU": 1}] * ranks, strategy="STRICT_PACK")
ray.get(group.ready())
workers = [
    Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)).remote() for i in range(ranks)
]
answers = ray.get([w.answer.remote(i) for i, w in enumerate(workers)])
assert answers == list(range(ranks)), answers
