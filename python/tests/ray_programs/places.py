"""Resources: CPUs, GPUs and their parts, placement groups, strategies, the context."""

import os

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


def say(*what):
    print("=", *what, flush=True)


ray.init(num_cpus=4, num_gpus=4, resources={"shelf": 2}, log_to_driver=False)
total = ray.cluster_resources()
say(total["CPU"], total["GPU"], total["shelf"], total["node:__internal_head__"])


@ray.remote
def where():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()


@ray.remote(num_cpus=0)
class Holder:
    def where(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids(), ray.get_runtime_context().get_accelerator_ids()["GPU"]


say(ray.get(where.remote()))
say(ray.get(where.options(num_gpus=1).remote())[1], len(ray.get(where.options(num_gpus=2).remote())[1]))
holders = [Holder.options(num_gpus=0.5).remote() for _ in range(4)]
gpus = [ray.get(h.where.remote()) for h in holders]
say([g[0] for g in gpus], [g[1] for g in gpus], [g[2] for g in gpus])
big = Holder.options(num_gpus=2).remote()
say(ray.get(big.where.remote()))
say(ray.available_resources().get("GPU", 0))
for h in holders + [big]:
    ray.kill(h)
del holders, big, h

pg = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}], strategy="PACK", name="pair")
say(ray.get(pg.ready()) == pg, pg.wait(60), pg.bundle_count, pg.bundle_specs)
table = placement_group_table(pg)
say(table["state"], table["strategy"], table["name"], sorted(table["bundles"].items()), sorted(table))
inside = [Holder.options(num_gpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(pg, placement_group_bundle_index=i)).remote() for i in (0, 1)]
say(sorted(len(ray.get(h.where.remote())[1]) for h in inside))
say(ray.get(inside[0].__ray_call__.remote(lambda self: ray.util.get_current_placement_group() == pg)))
never = placement_group([{"GPU": 3}])
say(never.wait(0.2), placement_group_table(never)["state"])
remove_placement_group(pg)
try:
    ray.get(inside[0].where.remote())
except ray.exceptions.RayActorError as error:
    say(type(error).__name__)
say(never.wait(60), placement_group_table(pg)["state"])
remove_placement_group(never)

for wrong in ([], [{}], [{"CPU": 0}], {"CPU": 1}):
    try:
        placement_group(wrong)
    except ValueError as error:
        say(type(error).__name__)
try:
    placement_group([{"CPU": 1}], strategy="TIGHT")
except ValueError as error:
    say(type(error).__name__)

node, = ray.nodes()
say(node["Alive"], node["Resources"]["CPU"], node["NodeID"] == ray.get_runtime_context().get_node_id(), len(node["NodeID"]))


@ray.remote(num_cpus=1)
def node_of():
    return ray.get_runtime_context().get_node_id()


say(ray.get(node_of.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()) == node["NodeID"])
say(ray.get(node_of.options(scheduling_strategy="SPREAD").remote()) == node["NodeID"])
try:
    ray.get(node_of.options(scheduling_strategy=NodeAffinitySchedulingStrategy("0" * 56, soft=False)).remote())
except ray.exceptions.TaskUnschedulableError as error:
    say(type(error).__name__)
say(ray.get(node_of.options(scheduling_strategy=NodeAffinitySchedulingStrategy("0" * 56, soft=True)).remote()) == node["NodeID"])
say(ray.get(node_of.options(resources={"shelf": 2}).remote()) == node["NodeID"])
say(ray.wait([node_of.options(resources={"shelf": 3}).remote()], timeout=0.3)[0])

context = ray.get_runtime_context()
say(context.get_job_id(), context.get_actor_id(), len(context.get_worker_id()), len(context.get_node_id()))


@ray.remote
def environment():
    return os.environ.get("FLAVOUR"), ray.get_runtime_context().get_job_id()


say(ray.get(environment.options(runtime_env={"env_vars": {"FLAVOUR": "mint"}}).remote()), ray.get(environment.remote())[0])
say(ray.util.get_node_ip_address() == node["NodeManagerAddress"])
ray.shutdown()

os.environ["CUDA_VISIBLE_DEVICES"] = "6,7"
try:
    ray.init(num_gpus=3, log_to_driver=False)
except ValueError as error:
    say(error)
ray.init(num_gpus=2, log_to_driver=False)
say(ray.get(where.remote()), ray.get(where.options(num_gpus=1).remote()))
ray.shutdown()
