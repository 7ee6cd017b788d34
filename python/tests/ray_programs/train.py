"""Ray Train: the loss of a linear model on two workers, checkpoints by score, and a failure."""

import json
import os
import shutil
import tempfile

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_preload_python_modules"] = "torch,torch._dynamo"
import ray.train  # noqa: E402
import torch  # noqa: E402
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

STORAGE = tempfile.mkdtemp()


def say(*what):
    print("=", *what, flush=True)


def train(config):
    torch.manual_seed(0)
    context = ray.train.get_context()
    x = torch.linspace(-1, 1, 32).reshape(-1, 1)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, 3 * x + 1), batch_size=4))
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "model.pt"))
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    for epoch in range(first, config["epochs"]):
        if epoch == config["fails_at"] and (checkpoint is None or config["always"]):
            raise ValueError("a bad epoch")
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1).item()
        metrics = {"loss": round(loss, 4), "epoch": epoch, "score": abs(epoch - 2), "resumed": first}
        with tempfile.TemporaryDirectory() as directory:
            if context.get_world_rank() == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(directory, "model.pt"))
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory) if context.get_world_rank() == 0 else None)
    return [context.get_world_size(), context.get_world_rank(), len(loader)]


def run(name, fails_at=None, always=False, max_failures=0, **kept):
    trainer = TorchTrainer(
        train, train_loop_config={"epochs": 5, "fails_at": fails_at, "always": always}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=name, storage_path=STORAGE, failure_config=FailureConfig(max_failures=max_failures), checkpoint_config=CheckpointConfig(**kept)))
    return trainer.fit()


def said(result):
    say(json.dumps(result.metrics, sort_keys=True), result.error, result.return_value)
    say([metrics["epoch"] for _, metrics in result.best_checkpoints], os.path.basename(result.path))
    say([os.path.exists(os.path.join(checkpoint.path, "model.pt")) for checkpoint, _ in result.best_checkpoints])
    say(sum(entry.is_dir() and entry.name.startswith("checkpoint_") for entry in os.scandir(result.path)))


try:
    best = run("best", num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max")
    said(best)
    say(best.get_best_checkpoint("loss", "min") == best.best_checkpoints[-1][0], best.checkpoint == best.best_checkpoints[-1][0])
    said(run("again", fails_at=3, max_failures=1))
    try:
        run("never", fails_at=2, always=True, max_failures=1)
    except ray.train.TrainingFailedError as error:
        say(isinstance(error, ray.train.WorkerGroupError) if hasattr(ray.train, "WorkerGroupError") else True)
        say(sorted({type(e).__name__ for e in error.worker_failures.values()}))
finally:
    shutil.rmtree(STORAGE)
