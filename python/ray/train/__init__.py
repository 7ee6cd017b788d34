"""Ray Train's names: a trainer's fit runs its function as the ranks of a golaunch job.

The job has golaunch's restarts, verdicts and monitor. Ranks and the program share a directory, that
of RunConfig: the function travels in it, and so do checkpoints and what was reported.
"""

from ._config import Checkpoint, CheckpointConfig, DataConfig, FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError  # noqa: F401
from ._rank import get_checkpoint, get_context, report  # noqa: F401

_UNSERVED = {
    "get_dataset_shard": "torch.utils.data with ray.train.torch.prepare_data_loader", "get_preemption_info": "the file of GOLAUNCH_NOTICE_FILE",
    "get_all_reported_checkpoints": "Result.best_checkpoints after fit", "SyncConfig": "a storage_path that all nodes share", "UserCallback": "code in the function",
    "ValidationConfig": "validation in the function", "LoggingConfig": "the module logging", "BackendConfig": "ray.train.torch.TorchConfig",
}


def __getattr__(name):
    if name in _UNSERVED:
        raise NotImplementedError(f"golaunch does not serve ray.train.{name}; use {_UNSERVED[name]}")
    raise AttributeError(f"module 'ray.train' has no attribute {name!r} (this is golaunch-ray: docs/from-ray.md lists what it serves)")
