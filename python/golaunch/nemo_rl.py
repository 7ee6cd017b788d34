"""NeMo RL's names for golaunch's classes. docs/from-nemo-rl.md says how to switch, and what
differs.

    from golaunch.nemo_rl import RayVirtualCluster, RayWorkerBuilder, RayWorkerGroup, get
"""

import os
import secrets
import socket

from .cluster import VirtualCluster
from .errors import GolaunchError
from .future import RemoteGenerator
from .group import WorkerGroup
from .hosted import Handle, described, find, get, waiting
from .sharding import NamedSharding

__all__ = ["NamedSharding", "RayVirtualCluster", "RayWorkerBuilder", "RayWorkerGroup", "get"]


class RayVirtualCluster(VirtualCluster):
    """A VirtualCluster with NeMo RL's arguments; options are golaunch's, such as address. Nodes
    with 0 bundles are left out.
    """

    def __init__(self, bundle_ct_per_node_list, use_gpus=True, max_colocated_worker_groups=1, num_gpus_per_node=8, name="",
                 placement_group_strategy="SPREAD", port_range_low=None, port_range_high=None, segment_size=None, node_resource_constraints=None,
                 **options):
        if placement_group_strategy not in ("STRICT_PACK", "PACK", "SPREAD"):
            raise ValueError(f"placement_group_strategy={placement_group_strategy!r}: STRICT_PACK, PACK or SPREAD")
        _refuse(port_range_low=port_range_low, port_range_high=port_range_high,
                why="golaunch chooses the port at which a group's ranks meet, and keeps it free")
        _refuse(segment_size=segment_size, node_resource_constraints=node_resource_constraints,
                why="which nodes are near each other is what golaunch's coordinator knows (its --topology), and not this program")
        self.num_gpus_per_node, self.max_colocated_worker_groups = num_gpus_per_node, max_colocated_worker_groups
        if name:
            options["name"] = f"{''.join(c if c.isalnum() else '-' for c in name.lower()).strip('-')[:32]}-{secrets.token_hex(2)}"
        super().__init__(
            [n for n in bundle_ct_per_node_list if n], use_gpus=use_gpus, colocate=max_colocated_worker_groups,
            # As in NeMo RL, all bundles of a number are on one node.
            strategy="STRICT_PACK", **options)

    def get_master_address_and_port(self):
        """The address of the first node, and a port that is free there now, for groups that meet
        each other, if that node is this machine.
        """
        address = self.nodes[0]["address"]
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
            try:
                s.bind((address, 0))
            except OSError as error:
                raise GolaunchError(
                    f"cannot find a free port at {address} from here: {error.strerror}; have a worker there choose one: "
                    "group.run_single_worker_single_data(method, 0)") from None
            return address, s.getsockname()[1]

    def get_placement_groups(self):
        raise GolaunchError("there are no placement groups: cluster.bundles_per_node is how many bundles each node has, and cluster.nodes says where")

    def shutdown(self):
        self.close()
        return True


class RayWorkerBuilder:
    """The class of workers by its full name, "package.module.Class", and the arguments of its
    objects.
    """

    def __init__(self, ray_actor_class_fqn, *args, **kwargs):
        self.ray_actor_class_fqn, self.args, self.kwargs = ray_actor_class_fqn, args, kwargs

    def __call__(self, *_, **__):
        raise GolaunchError("a single worker is made by a group of one: RayWorkerGroup(cluster, builder, workers_per_node=1)")


class RayWorkerGroup(WorkerGroup):
    """A WorkerGroup with NeMo RL's arguments; options are golaunch's, such as restart or
    offload_method.
    """

    def __init__(self, cluster, remote_worker_builder, workers_per_node=None, name_prefix="", bundle_indices_list=None, sharding_annotations=None,
                 env_vars=None, dp_leader_worker_indices=None, **options):
        if bundle_indices_list is None:
            per_node = _numbers(cluster, workers_per_node)
            bundle_indices_list = [(node, [i]) for node, n in enumerate(per_node) for i in range(n)]
        else:
            per_node = _tied(cluster, bundle_indices_list)
        self.name_prefix, self.sharding_annotations = name_prefix, sharding_annotations
        self._tied, self._leaders, self._group_of = [(node, list(at)) for node, at in bundle_indices_list], [], []
        for group, (_, at) in enumerate(self._tied):
            self._leaders.append(len(self._group_of))
            self._group_of += [group] * len(at)
        if dp_leader_worker_indices is not None:
            leaders = list(dp_leader_worker_indices)
            if leaders != sorted(set(leaders)) or not set(leaders) <= set(self._leaders):
                raise ValueError(f"dp_leader_worker_indices={leaders}: ascending, and of the first workers of tied groups, {self._leaders}")
            self._leaders = leaders
        module, _, name = remote_worker_builder.ray_actor_class_fqn.rpartition(".")
        super().__init__(
            cluster, "golaunch.nemo_rl:_make", described(f"{module}:{name}", remote_worker_builder.args, remote_worker_builder.kwargs), name_prefix,
            self._tied, cluster.num_gpus_per_node if isinstance(cluster, RayVirtualCluster) else None, workers_per_node=per_node,
            name="".join(c if c.isalnum() else "-" for c in f"{name_prefix or name}-{secrets.token_hex(2)}".lower()), env=env_vars, sharding=_sharding(sharding_annotations),
            **options)

    @property
    def handles(self):
        """The workers like NeMo RL's `workers`: handle.method.remote(...) returns what get() waits
        for.
        """
        return [Handle(w) for w in self.workers]

    @property
    def world_size(self):
        return len(self.workers)

    @property
    def dp_leader_worker_indices(self):
        return list(self._leaders)

    @property
    def dp_size(self):
        return len(self._leaders)

    def get_dp_leader_worker_idx(self, dp_shard_idx):
        if not 0 <= dp_shard_idx < len(self._leaders):
            raise IndexError(f"no data parallel shard {dp_shard_idx}: there are 0 to {len(self._leaders) - 1}")
        return self._leaders[dp_shard_idx]

    @property
    def worker_metadata(self):
        known = super().worker_metadata
        for w, told in enumerate(known):
            group = self._group_of[w]
            node, at = self._tied[group]
            first = self._group_of.index(group)
            told.update(node_idx=node, global_rank=w, dp_shard_idx=group, local_rank=w - first, bundle_indices=(node, at) if w == first else None,
                        name=f"{self.name_prefix}-grp{group}-{w - first}" if len(at) > 1 else f"{self.name_prefix}-{node}-{at[0]}")
        return known

    def get_all_worker_results(self, future_bundle, return_generators_as_proxies=False):
        """Waits for the results of a call. The items of generators are one list, in the order of
        workers.
        """
        results = get(future_bundle)
        if return_generators_as_proxies or not isinstance(results, list) or not any(isinstance(r, RemoteGenerator) for r in results):
            return results
        return [item for r in results for item in (r if isinstance(r, RemoteGenerator) else [r])]


def _refuse(why, **options):
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} is not there with golaunch: {why}; leave it out")


def _numbers(cluster, workers_per_node):
    bundles = cluster.bundles_per_node
    if workers_per_node is None:
        return bundles
    return [workers_per_node] * len(bundles) if isinstance(workers_per_node, int) else list(workers_per_node)


def _tied(cluster, bundle_indices_list):
    """How many workers each node has. A worker's rank is its index in the list; golaunch counts
    ranks node by node, and on a node bundle by bundle.
    """
    flat = [(node, i) for node, at in bundle_indices_list for i in at]
    per_node = [sum(1 for node, _ in flat if node == n) for n in range(len(cluster.bundles_per_node))]
    while per_node and per_node[-1] == 0:
        per_node.pop()
    if flat != [(node, i) for node, n in enumerate(per_node) for i in range(n)]:
        raise ValueError(
            f"bundle_indices_list={bundle_indices_list}: golaunch counts ranks node by node, and on each node by bundles from 0; a tied group that spans nodes is "
            "not there with golaunch: use sharding_annotations for it")
    return per_node


def _sharding(annotations):
    if annotations is None or isinstance(annotations, NamedSharding):
        return annotations
    return NamedSharding(annotations.layout, annotations.names)


# In the worker


def _make(description, prefix, tied, gpus_per_node):
    """Makes the worker's object as its class requires (configure_worker)."""
    import inspect

    cls, args, kwargs = find(description)
    rank = int(os.environ["RANK"])
    os.environ.update(NODE_RANK=os.environ["GROUP_RANK"], NRL_WORKER_GROUP=prefix)
    configure = getattr(cls, "configure_worker", None)
    if configure is not None:
        firsts, first = {}, 0
        for node, at in tied:
            firsts[first] = (node, list(at))
            first += len(at)
        place = {"num_gpus": 1, "bundle_indices": firsts.get(rank), "num_gpus_per_node": gpus_per_node}
        known = inspect.signature(configure).parameters
        wanted = configure(**{k: v for k, v in place.items() if k in known or any(p.kind == p.VAR_KEYWORD for p in known.values())})
        _, env, more, *runtime = wanted
        if runtime and runtime[0]:
            raise ValueError(f"{cls.__qualname__}.configure_worker wants the runtime environment {runtime[0]}, which is not there with golaunch")
        os.environ.update({k: str(v) for k, v in (env or {}).items()})
        kwargs.update(more or {})
    return waiting(cls(*args, **kwargs))
