"""How to train, and the results."""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass
class ScalingConfig:
    num_workers: Any = 1
    use_gpu: bool = False
    resources_per_worker: Optional[dict] = None
    placement_strategy: str = "PACK"
    trainer_resources: Optional[dict] = None
    accelerator_type: Optional[str] = None
    label_selector: Any = None
    use_tpu: bool = False
    topology: Optional[str] = None

    def __post_init__(self):
        for name, use in (("accelerator_type", "RAY_ADDRESS of a cluster with these GPUs"), ("label_selector", "golaunch --require"), ("use_tpu", "GPUs"), ("topology", "GPUs")):
            if getattr(self, name):
                raise NotImplementedError(f"golaunch does not serve ScalingConfig({name}=...); use {use}")
        if not isinstance(self.num_workers, int):
            raise NotImplementedError(f"golaunch does not serve num_workers={self.num_workers!r}; use golaunch --nodes MIN:MAX with a torchrun program")
        if self.num_workers < 1:
            raise ValueError(f"num_workers={self.num_workers}: 1 or more")
        if set(self.resources_per_worker or {}) - {"CPU", "GPU"} or (self.resources_per_worker or {}).get("GPU", 1) not in (0, 1):
            raise NotImplementedError(f"golaunch does not serve resources_per_worker={self.resources_per_worker}; a worker has one GPU or none")


@dataclass
class FailureConfig:
    max_failures: int = 0
    controller_failure_limit: int = -1


@dataclass
class CheckpointConfig:
    num_to_keep: Optional[int] = None
    checkpoint_score_attribute: Optional[str] = None
    checkpoint_score_order: str = "max"

    def __post_init__(self):
        if self.num_to_keep is not None and self.num_to_keep <= 0:
            raise ValueError(f"Received invalid num_to_keep: {self.num_to_keep}. Must be None or an integer >= 1.")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(f"checkpoint_score_order must be either \"max\" or \"min\", got {self.checkpoint_score_order!r}")


@dataclass
class RunConfig:
    name: Optional[str] = None
    storage_path: Optional[str] = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    worker_runtime_env: Optional[dict] = None

    def __post_init__(self):
        if self.storage_path is not None and "://" in str(self.storage_path):
            raise NotImplementedError(f"golaunch does not serve storage_path={str(self.storage_path)!r}; use a directory that all nodes share")
        self.failure_config = self.failure_config or FailureConfig()
        self.checkpoint_config = self.checkpoint_config or CheckpointConfig()


class BackendConfig:
    """The settings of the ranks besides their function: there are none."""

    def _group(self, gpu):
        """The backend and the timeout of their torch.distributed group, or None."""


class DataConfig:
    def __init__(self, *_args, **_kwargs):
        raise NotImplementedError("golaunch does not serve ray.train.DataConfig; use torch.utils.data with ray.train.torch.prepare_data_loader")


class Checkpoint:
    """A directory."""

    def __init__(self, path, filesystem=None):
        self.path = str(path)

    @classmethod
    def from_directory(cls, path):
        return cls(path)

    def to_directory(self, path=None):
        path = path or tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return path

    @contextlib.contextmanager
    def as_directory(self):
        yield self.path

    def __eq__(self, other):
        return isinstance(other, Checkpoint) and other.path == self.path

    def __hash__(self):
        return hash(self.path)

    def __repr__(self):
        return f"Checkpoint(filesystem=local, path={self.path})"


@dataclass
class Result:
    """The return value of fit. metrics and checkpoint are from the last report with a checkpoint.
    """

    metrics: Optional[dict]
    checkpoint: Optional[Checkpoint]
    error: Optional[Exception]
    path: str
    best_checkpoints: list
    return_value: Any = None

    def get_best_checkpoint(self, metric, mode):
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: \"min\" or \"max\"")
        having = [(c, m) for c, m in self.best_checkpoints if metric in m]
        return (max if mode == "max" else min)(having, key=lambda pair: pair[1][metric])[0] if having else None

    @classmethod
    def from_path(cls, path):
        from . import _store

        return cls(path=os.fspath(path), error=None, **_store.Store(path).result())


class TrainingFailedError(RuntimeError):
    """The job has failed."""


class WorkerGroupError(TrainingFailedError):
    """The function has failed, in these ranks."""

    def __init__(self, error_message, worker_failures):
        super().__init__(error_message)
        self.worker_failures = worker_failures

    def __reduce__(self):
        return type(self), (self.args[0], self.worker_failures)
