"""Workers of verl's single controller."""

import os

import torch
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, Execute, make_nd_compute_dataproto_dispatch_fn, register


class Actor(Worker):
    def __init__(self, scale, name="actor"):
        super().__init__()
        self.scale, self.name = scale, name
        # Two workers in a row have the same data, and the first of them has the result.
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self, path):
        return path, self.rank, self.world_size, os.environ["LOCAL_RANK"], os.environ["MINE"]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def double(self, data):
        return DataProto.from_dict({"x": data.batch["x"] * self.scale}, meta_info={"of": self.name})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def by_mesh(self, data):
        return DataProto.from_dict({"x": data.batch["x"], "rank": torch.full((len(data),), self.rank)})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def later(self, data):
        return DataProto.from_dict({"x": data.batch["x"] + 1})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def ranks_later(self):
        return self.rank

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def own(self, x):
        return self.rank, x

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def count(self, data):
        return self.rank, len(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def first(self):
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def wait(self, x):
        return x + self.rank

    @register()
    def fail(self):
        raise KeyError(self.name)

    def unregistered(self, x):
        return self.rank, x


def plus_rank(worker, data):
    return DataProto.from_dict({"x": data.batch["x"] + worker.rank})


class Critic(Worker):
    def __init__(self):
        super().__init__()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def peers(self):
        return sorted(self.fused_worker_dict), os.getpid()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self, path):
        return "critic", path
