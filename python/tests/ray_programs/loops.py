"""Ray Train without torch: a function on two workers, with checkpoints, and one that fails."""

import json
import os
import shutil
import sys
import tempfile

import ray.train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

STORAGE = tempfile.mkdtemp()


def say(*what):
    print("=", *what, flush=True)


def train(config):
    context, checkpoint, first = ray.train.get_context(), ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory, open(os.path.join(directory, "step")) as f:
            first = int(f.read()) + 1
    for step in range(first, config["steps"]):
        if step == config["fails_at"] and (checkpoint is None or config["always"]):
            raise ValueError("a bad step")
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "step"), "w") as f:
                f.write(str(step))
            ray.train.report({"step": step, "first": first}, checkpoint=Checkpoint.from_directory(directory) if context.get_world_rank() == 0 else None)
    return [context.get_world_size(), context.get_world_rank(), "torch" in sys.modules]


def run(name, fails_at=None, always=False, max_failures=0):
    return DataParallelTrainer(
        train, train_loop_config={"steps": 4, "fails_at": fails_at, "always": always}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=name, storage_path=STORAGE, failure_config=FailureConfig(max_failures=max_failures), checkpoint_config=CheckpointConfig(num_to_keep=2))).fit()


def said(result):
    say(json.dumps(result.metrics, sort_keys=True), result.error, result.return_value, [metrics["step"] for _, metrics in result.best_checkpoints])


try:
    said(run("whole"))
    said(run("again", fails_at=2, max_failures=1))
    try:
        run("never", fails_at=1, always=True)
    except ray.train.WorkerGroupError as error:
        say(sorted({type(e).__name__ for e in error.worker_failures.values()}))
finally:
    shutil.rmtree(STORAGE)
