"""Adds up the ranks, over gloo; the argument is the init method. A line is one write: torchrun's ranks share the console."""
import os
import sys

import torch
import torch.distributed as dist

import libuv

libuv.do_without()
method = sys.argv[1]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
total = torch.tensor([rank])
dist.all_reduce(total)
sys.stdout.write(f"rank {rank} of {size}: sum {total.item()}, launched {dist.is_torchelastic_launched()}\n")
dist.destroy_process_group()
