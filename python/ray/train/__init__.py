"""Ray Train's names: a trainer's fit runs its function as the ranks of a golaunch job.

The job has golaunch's restarts, verdicts and monitor. Ranks and the program share a directory, that
of RunConfig: the function travels in it, and so do checkpoints and what was reported.
"""

from .._unserved import refuse
from ._config import BackendConfig, Checkpoint, CheckpointConfig, DataConfig, FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError  # noqa: F401
from ._rank import get_checkpoint, get_context, report  # noqa: F401


def __getattr__(name):
    refuse(__name__, name)
