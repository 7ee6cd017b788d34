"""Pools of processes, with the names of the module multiprocessing."""

from multiprocessing import JoinableQueue, TimeoutError  # noqa: F401

from .pool import Pool  # noqa: F401

__all__ = ["Pool", "TimeoutError", "JoinableQueue"]
