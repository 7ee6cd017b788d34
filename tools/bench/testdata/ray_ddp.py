"""The work of ddp.py on a running Ray cluster: Ray Train starts the ranks, and starts them again
when one has died.

    ray_ddp.py RANKS NOTES DIRECTORY
"""
import os
import sys

import ray.train
import ray.train.torch

ranks, notes, directory = int(sys.argv[1]), *sys.argv[2:4]
here = os.path.dirname(os.path.abspath(__file__))


def rank(_):
    sys.path.insert(0, here)
    import ddp

    with open(notes, "a+") as f:
        f.seek(0)
        attempt = 1 if "death" in f.read() else 0
    ddp.train(notes, True, attempt)


ray.init(log_to_driver=False, logging_level="ERROR")
ray.train.torch.TorchTrainer(
    rank,
    train_loop_config={},
    scaling_config=ray.train.ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_PACK"),
    torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    run_config=ray.train.RunConfig(storage_path=directory, failure_config=ray.train.FailureConfig(max_failures=1)),
).fit()
