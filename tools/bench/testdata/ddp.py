"""A rank that trains a small model with DistributedDataParallel, under any launcher, and notes its
first step of each attempt.

    ddp.py NOTES [restart]

With "restart", rank 1 kills itself at its third step of attempt 0. Times are of CLOCK_MONOTONIC, in
nanoseconds; memory is the proportional memory (PSS) of all ranks together, after the first step, in
kB.
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# mpirun and srun have other names for torch's variables.
for name, others in {
    "RANK": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
}.items():
    for other in others:
        if other in os.environ:
            os.environ.setdefault(name, os.environ[other])


def train(notes, restart, attempt):
    """Train in an existing process group."""

    def note(what, value):
        with open(notes, "a") as f:
            f.write("%d %s %d\n" % (attempt, what, value))

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(10):
        if restart and attempt == 0 and step == 2 and dist.get_rank() == 1:
            note("death", time.monotonic_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(32, 16)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            note("step", time.monotonic_ns())
            total = torch.tensor([proportional()])
            dist.barrier()  # all ranks were measured while all lived
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                note("memory", total.item())


def proportional():
    with open("/proc/self/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(sys.argv[1], "restart" in sys.argv[2:], int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    dist.destroy_process_group()
