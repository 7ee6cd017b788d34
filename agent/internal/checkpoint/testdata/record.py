"""Records small checkpoints as real libraries write them: record.py DIR (torch, safetensors).

They are the samples of the tests of this package. Each checkpoint is whole."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def rank(r, out):
    os.environ.update(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    state = {
        "model": {"w": distribute_tensor(torch.arange(64.0).reshape(8, 8), mesh, [Shard(0)])},
        "step": torch.tensor(40), "note": {"lr": 0.1, "names": ["a", "b"]},
    }
    dcp.save(state, checkpoint_id=os.path.join(out, "step-40"))
    dist.destroy_process_group()


if __name__ == "__main__":
    out = sys.argv[1]
    state = {"w": torch.arange(16.0), "step": 7}
    torch.save(state, os.path.join(out, "model_7.pt"))
    torch.save(state, os.path.join(out, "legacy.pt"), _use_new_zipfile_serialization=False)
    from safetensors.torch import save_file
    save_file({"w": torch.arange(16.0), "b": torch.zeros(3)}, os.path.join(out, "model.safetensors"))
    mp.start_processes(rank, (out,), nprocs=2, start_method="fork")
