"""Train a small model with DistributedDataParallel; resume from the last checkpoint after a
restart.

Runs unmodified under golaunch and torchrun:

    golaunch --procs-per-node 4 -- python3 train.py --steps 60 --checkpoint /tmp/ddp.pt
    torchrun --nproc-per-node 4 train.py --steps 60 --checkpoint /tmp/ddp.pt

With --die-at STEP, rank --die-rank kills itself with SIGKILL at that step of the first attempt. The
loss at the end is the same as in an undisturbed run, since data, initialization and optimizer
depend on the step alone.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of this step and rank, the same in every attempt."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(32, 16, generator=generator)
    return x, x.sum(dim=1, keepdim=True).sin()


def save(path: str, step: int, model, optimizer) -> None:
    """Write the checkpoint so that a crash leaves the old or the new one, never half of one."""
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--die-rank", type=int, default=1)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, attempt = dist.get_rank(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    torch.set_num_threads(1)

    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    start = 0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, map_location=device)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
        if rank == 0:
            print(f"attempt {attempt}: resumed at step {start}", flush=True)
    model = DistributedDataParallel(net)

    for step in range(start, args.steps):
        if attempt == 0 and step == args.die_at and rank == args.die_rank:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = (t.to(device) for t in batch(step, rank))
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % args.every == 0:
            save(args.checkpoint, step + 1, net, optimizer)

    with torch.no_grad():
        total = torch.nn.functional.mse_loss(model(batch(args.steps, rank)[0].to(device)), batch(args.steps, rank)[1].to(device))
    dist.all_reduce(total)
    if rank == 0:
        print(f"final loss {total.item() / dist.get_world_size():.6f} after {args.steps} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # End without Python's usual cleanup: a thread of gloo may still hold a gradient during the
    # cleanup, and then abort the process (torch 2.15, on CPUs).
    os._exit(0)
