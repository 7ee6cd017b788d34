"""A group of processes over torch's gloo process group, separate from torch's default group."""

import asyncio
import datetime
import os

import ray

from .. import get_node_ip_address

NAME = "info_"  # and a group's name: that of the actor by which its members meet


class Meeting:
    """An actor through which the members of a group learn their ranks, and where the store is."""

    def __init__(self, declared=None):
        self._declared, self._stores = declared, {}

    async def declared(self):
        """The actors of the group, and their ranks."""
        return self._declared

    async def meet(self, turn, address=None):
        """The address of the store that rank 0 serves for one use of the name, since a name may be
        used again.
        """
        store = self._stores.setdefault(turn, asyncio.get_running_loop().create_future())
        if address is not None and not store.done():
            store.set_result(address)
        return await asyncio.shield(store)


def meeting(name, *declared):
    return ray.remote(Meeting).options(name=NAME + name, get_if_exists=True, num_cpus=0, max_concurrency=100_000).remote(*declared)


class Group:
    def __init__(self, name, world_size, rank, timeout_ms, turn):
        import torch.distributed as dist

        self.world_size, self.rank = world_size, rank
        self._dist, self._ip = dist, get_node_ip_address()
        timeout = datetime.timedelta(milliseconds=timeout_ms)
        self._meeting = meeting(name)  # the actor lives as long as one of its members
        if rank == 0:
            store = dist.TCPStore(self._ip, 0, world_size, True, timeout, wait_for_workers=False)
            ray.get(self._meeting.meet.remote(turn, (self._ip, store.port)))
        else:
            try:
                host, port = ray.get(self._meeting.meet.remote(turn), timeout=timeout.total_seconds())
            except ray.exceptions.GetTimeoutError:
                raise TimeoutError(f"rank 0 of the collective group '{name}' has not come within {timeout.total_seconds():g} s") from None
            store = dist.TCPStore(host, port, world_size, False, timeout)
        self._made = self._gloo(dist.PrefixStore(name, store), timeout)

    def _gloo(self, store, timeout):
        options = self._dist.ProcessGroupGloo._Options()
        options._timeout = timeout
        if os.environ.get("GLOO_SOCKET_IFNAME"):
            return self._dist.ProcessGroupGloo(store, self.rank, self.world_size, timeout)
        options._devices = [self._dist.ProcessGroupGloo.create_device(hostname=self._ip)]
        return self._dist.ProcessGroupGloo(store, self.rank, self.world_size, options)

    def _options(self, kind, op=None, **values):
        options = getattr(self._dist, kind + "Options")()
        if op is not None:
            options.reduceOp = getattr(self._dist.ReduceOp, op.name)
        for name, value in values.items():
            setattr(options, name, value)
        return options

    def allreduce(self, tensor, op):
        self._made.allreduce([tensor], self._options("Allreduce", op)).wait()

    def reduce(self, tensor, root, op):
        """Reduces to the root: no other rank's tensor changes."""
        made = tensor if self.rank == root else tensor.detach().clone()
        self._made.reduce([made], self._options("Reduce", op, rootRank=root)).wait()
        return made

    def broadcast(self, tensor, root):
        self._made.broadcast([tensor], self._options("Broadcast", rootRank=root)).wait()

    def allgather(self, tensors, tensor):
        self._made.allgather([tensors], [tensor]).wait()

    def reducescatter(self, tensor, tensors, op):
        """Gloo has no reducescatter, so this reduces to each rank in turn."""
        for root, part in enumerate(tensors):
            made = self.reduce(part.detach().clone(), root, op)
            if root == self.rank:
                tensor.copy_(made)

    def send(self, tensor, rank):
        self._made.send([tensor], rank, 0).wait()

    def recv(self, tensor, rank):
        self._made.recv([tensor], rank, 0).wait()

    def barrier(self):
        self._made.barrier().wait()

    def destroy_group(self):
        self._made = self._meeting = None
