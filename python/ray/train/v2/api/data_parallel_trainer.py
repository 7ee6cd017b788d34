"""The trainer of functions that need no torch, where Ray has it."""

from ...data_parallel_trainer import DataParallelTrainer  # noqa: F401
