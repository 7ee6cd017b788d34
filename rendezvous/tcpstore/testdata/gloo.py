"""Runs a gang of argv[1] ranks over gloo, with stores on 127.0.0.1 that a launcher serves.

The first attempt uses the store at port argv[2], and the second the store at port argv[3]. Each may
be a list of ports of one store, which ranks use in turn. A rank of the first attempt dies between
two collectives; the others are killed, and the second attempt runs to its end. Ranks are forked
from a process that has imported torch.
"""
import functools
import os
import signal
import sys
import traceback

import torch
import torch.distributed as dist

size = int(sys.argv[1])
dead, died = 1, 9


def gang(attempt):
    """Runs an attempt to its end, or to the death of the rank that has to die."""
    ranks = {start(attempt, rank): rank for rank in range(size)}
    while ranks:
        pid, status = os.wait()
        rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
        doomed = attempt == 0 and rank == dead
        assert code == (died if doomed else 0), f"rank {rank} of attempt {attempt} ended with {code}"
        if doomed:
            break
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start(attempt, rank):
    ports = sys.argv[2 + attempt].split(",")
    pid = os.fork()
    if pid != 0:
        return pid
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=ports[rank % len(ports)],
        RANK=str(rank),
        WORLD_SIZE=str(size),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT=str(attempt),
        GLOO_SOCKET_IFNAME="lo",
    )
    try:
        [first, second][attempt]()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def join():
    """Makes the group of all ranks. Debian builds torch without libuv, which its client does not
    need."""
    if hasattr(dist.TCPStore, "libuvBackend"):  # 2.2
        sys.modules["torch.distributed.rendezvous"].TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    dist.init_process_group("gloo")
    return dist.get_rank()


def reduce(rank):
    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == size * (size - 1) // 2


def first():
    rank = join()
    try:
        reduce(rank)
        if rank == dead:
            os._exit(died)
        dist.barrier()
    except RuntimeError:  # the dead rank's connection closed
        if rank == dead:
            raise
        signal.pause()
    raise AssertionError("a barrier that a dead rank never came to was passed")


def second():
    rank = join()
    reduce(rank)
    pair = dist.new_group([0, 1])
    if rank < 2:
        some = torch.ones(1)
        dist.all_reduce(some, group=pair)
        assert some.item() == 2
    names = [None] * size
    dist.all_gather_object(names, f"rank {rank}")
    assert names == [f"rank {r}" for r in range(size)]
    dist.barrier()
    dist.destroy_process_group()


gang(0)
gang(1)
print("ok")
