"""Two nodes: placement groups of each strategy, affinity, objects that move."""

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


def say(*what):
    print("=", *what, flush=True)


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"left": 1}})
cluster.add_node(num_cpus=2, resources={"right": 1})
ray.init(address=cluster.address, log_to_driver=False)
say(len(ray.nodes()), ray.cluster_resources()["CPU"])


@ray.remote(num_cpus=0)
class Place:
    def node(self):
        return ray.get_runtime_context().get_node_id()

    def make(self, n):
        return b"z" * n

    def put(self, n):
        return [ray.put(b"z" * n)]

    def size(self, value):
        return len(value)

    def sizes(self, values):
        return [len(v) for v in ray.get(values)]


for strategy, bundles in (("STRICT_PACK", 2), ("PACK", 2), ("SPREAD", 2), ("STRICT_SPREAD", 2), ("STRICT_SPREAD", 3)):
    group = placement_group([{"CPU": 1}] * bundles, strategy=strategy)
    there = group.wait(60 if bundles == 2 else 1)
    nodes = set(placement_group_table(group)["bundles_to_node_id"].values())
    actors = [Place.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, i)).remote() for i in range(bundles)] if there else []
    say(strategy, bundles, there, len(nodes) if there else 0, len(set(ray.get([a.node.remote() for a in actors]))))
    remove_placement_group(group)
    del actors

left = Place.options(resources={"left": 0.1}).remote()
right = Place.options(resources={"right": 0.1}).remote()
a, b = ray.get([left.node.remote(), right.node.remote()])
say(a != b)
mine = ray.get_runtime_context().get_node_id()
other = next(n["NodeID"] for n in ray.nodes() if n["NodeID"] != mine)
say(ray.get(Place.options(scheduling_strategy=NodeAffinitySchedulingStrategy(other, soft=False)).remote().node.remote()) == other)

n = 3_000_000
say(ray.get(right.size.remote(left.make.remote(n))), ray.get(left.size.remote(right.make.remote(n))), len(ray.get(right.make.remote(n))))
say(ray.get(left.sizes.remote(ray.get(right.put.remote(n)))), ray.get(right.sizes.remote([ray.put(b"q" * n)])))


@ray.remote
def chain(actor):
    return ray.get(actor.node.remote())


say(ray.get(chain.options(resources={"right": 0.1}).remote(left)) == a)
ray.shutdown()
cluster.shutdown()
