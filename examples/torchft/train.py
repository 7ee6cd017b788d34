"""Trains a small model with torchft on CPUs.

    golaunch --procs-per-node 2 --replica-groups 2 -- python train.py

Each replica group averages its gradients with the gradients of the others. When a group ends, the
others go on with the next step; when the group is back, it gets their weights.
"""
import os
import sys
import time
from datetime import timedelta

import torch
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
WORK = float(sys.argv[2]) if len(sys.argv) > 2 else 0  # seconds that a step takes in addition


def main():
    print("pid", os.getpid(), flush=True)
    group = int(os.environ["REPLICA_GROUP_ID"])
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=1,
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"train_{group}",
        timeout=timedelta(seconds=10),
    )
    optimizer = Optimizer(manager, optimizer)
    torch.manual_seed(group)
    while manager.current_step() < STEPS:
        optimizer.zero_grad()
        time.sleep(WORK)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        for work in [manager.allreduce(p.grad) for p in model.parameters()]:
            work.wait()
        optimizer.step()  # only if all groups have the same gradients
        print(f"step {manager.current_step()} with {manager.num_participants()} groups", flush=True)
    print(f"weights {model.weight.sum().item():.6f} after {manager.current_step()} steps", flush=True)
    manager.shutdown()


main()
