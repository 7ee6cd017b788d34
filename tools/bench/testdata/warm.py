"""A rank that notes its first collective, its memory after that, and, in attempt 0 of a job that restarts, the death of rank 1."""
import os
import sys
import time

import torch
import torch.distributed as dist

mode, notes = sys.argv[1:3]


def note(what, value):
    with open(notes, "a") as f:
        f.write("%s %s %d\n" % (os.environ["TORCHELASTIC_RESTART_COUNT"], what, value))


def proportional():
    with open("/proc/self/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))


dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
note("collective", time.time_ns())
dist.barrier()
if mode == "memory":
    kilobytes = torch.tensor([proportional()])
    dist.barrier()  # all have been measured while all lived
    dist.all_reduce(kilobytes)
    if dist.get_rank() == 0:
        note("memory", kilobytes.item())
if mode == "restart" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if dist.get_rank() == 1:
        note("death", time.time_ns())
        os._exit(3)
    time.sleep(60)
dist.barrier()
dist.destroy_process_group()
