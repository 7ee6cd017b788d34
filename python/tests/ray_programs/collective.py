"""ray.util.collective: groups of actors, of tasks, declared ones, and two at once."""

import numpy as np
import ray
import torch
from ray.util import collective
from ray.util.collective.types import Backend, ReduceOp


def say(*what):
    print("=", *what, flush=True)


def fails(do):
    try:
        do()
    except Exception as e:
        return type(e).__name__, str(e).splitlines()[0]


ray.init(num_cpus=4, log_to_driver=False)
say(collective.gloo_available(), collective.is_backend_available("none"), collective.is_group_initialized("default"), Backend("gloo"))


@ray.remote
class Member:
    def init(self, size, rank, name="default"):
        self.size, self.rank = size, rank
        collective.init_collective_group(size, rank, backend="gloo", group_name=name)
        return collective.get_rank(name), collective.get_collective_group_size(name), collective.is_group_initialized(name)

    def allreduce(self, name="default", op=ReduceOp.SUM):
        made = np.full((2, 2), collective.get_rank(name) + 2 if collective.get_rank(name) >= 0 else 2, dtype=np.float32)
        collective.allreduce(made, name, op)
        return made.tolist(), collective.get_rank(name)

    def others(self):
        rank, size = self.rank, self.size
        reduced, sent = torch.full((2,), float(rank)), torch.full((3,), float(rank))
        collective.reduce(reduced, dst_rank=1)
        collective.broadcast(sent, src_rank=2)
        gathered = [np.zeros(2, dtype=np.int64) for _ in range(size)]
        collective.allgather(gathered, np.full(2, rank))
        scattered = torch.zeros(2)
        collective.reducescatter(scattered, [torch.full((2,), float(rank + i)) for i in range(size)])
        ring = torch.zeros(1)
        if rank == 0:
            collective.send(torch.ones(1), 1)
            collective.recv(ring, size - 1)
        else:
            collective.recv(ring, rank - 1)
            collective.send(ring + 1, (rank + 1) % size)
        collective.barrier()
        return reduced.tolist(), sent.tolist(), [g.tolist() for g in gathered], scattered.tolist(), ring.tolist()

    def fails(self):
        t = torch.zeros(1)
        return [fails(do) for do in (
            lambda: collective.init_collective_group(3, 0, backend="gloo"), lambda: collective.send(t, self.rank), lambda: collective.recv(t, 7), lambda: collective.broadcast(t, -1),
            lambda: collective.allreduce([1]), lambda: collective.allgather([], t), lambda: collective.allreduce(t, "unknown"),
            lambda: collective.init_collective_group(1, 0, backend="none", group_name="n"))], collective.get_rank("unknown"), collective.get_collective_group_size("unknown")

    def destroy(self, name="default"):
        collective.destroy_collective_group(name)
        return collective.is_group_initialized(name)


members = [Member.remote() for _ in range(3)]
say(ray.get([m.init.remote(3, i) for i, m in enumerate(members)]))
for op in ReduceOp:
    say(op, ray.get([m.allreduce.remote(op=op) for m in members])[0])
for said in ray.get([m.others.remote() for m in members]):
    say(said)
for said in ray.get(members[0].fails.remote())[0]:
    say(said)
say(ray.get(members[0].fails.remote())[1:])
say(ray.get([m.destroy.remote() for m in members]))

say(ray.get([m.init.remote(3, 2 - i) for i, m in enumerate(members)]))  # the name again
say(ray.get([m.allreduce.remote() for m in members]))
for m in members:
    ray.kill(m)

# a group that the driver declares
members = [Member.remote() for _ in range(2)]
collective.create_collective_group(members, 2, [1, 0], backend="gloo", group_name="declared")
say(ray.get([m.allreduce.remote("declared") for m in members]))
say(fails(lambda: collective.create_collective_group(members, 2, [1, 0], backend="gloo", group_name="declared")))
say(fails(lambda: collective.create_collective_group(members, 2, [0], backend="gloo", group_name="d")))
say(fails(lambda: collective.create_collective_group(members, 2, [0, 0], backend="gloo", group_name="d")))
say(fails(lambda: collective.allreduce(np.zeros(1))), fails(lambda: collective.init_collective_group(1, 0, backend="gloo")))
say(ray.get([m.destroy.remote("declared") for m in members]))


@ray.remote
def task(rank):
    collective.init_collective_group(2, rank, backend="gloo", group_name="tasks")
    made = torch.ones(2)
    collective.allreduce(made, "tasks")
    collective.destroy_collective_group("tasks")
    return made.tolist()


say(ray.get([task.remote(i) for i in range(2)]))
ray.shutdown()
