"""A rank of a trainer's job."""

import datetime
import os
import pickle
import shutil
import sys

from .. import _cluster

_MEET = 1800.0  # seconds that a rank waits for others, as in Ray
_run = None  # the _Run of this rank; None outside of ranks


class _Run:
    def __init__(self, path, config):
        from ._store import Store

        self.config, self.rank, self.store = config, int(os.environ["RANK"]), Store(path)
        self.checkpoint, self.number = self.store.latest(), self.store.kept["count"]
        if self.checkpoint is None:
            self.checkpoint = config["resume_from"]
        self._shared, self._met, self._brought = _cluster.Store(), 0, 0

    def meet(self, brings=False):
        """Waits until all ranks are here. Returns whether any rank brings something."""
        self._met += 1
        here, prefix = int(os.environ["WORLD_SIZE"]) * self._met, f"ray-train/{os.environ['TORCHELASTIC_RESTART_COUNT']}/"
        if brings:
            self._shared.add(prefix + "brought", 1)
        if self._shared.add(prefix + "came", 1) == here:
            self._shared.set(f"{prefix}{self._met}", str(self._shared.add(prefix + "brought", 0)))
            self._shared.delete(f"{prefix}{self._met - 1}")  # all ranks have left the meeting
        try:
            before, self._brought = self._brought, int(self._shared.get(f"{prefix}{self._met}", _MEET))
        except TimeoutError:
            raise TimeoutError(f"other ranks have not come to this report, or to the end of the function, within {_MEET:.0f} s: all ranks report as often") from None
        return self._brought > before


def _current():
    if _run is None:
        raise RuntimeError("this function of ray.train is for the function that a trainer runs, and is called outside of it")
    return _run


def report(metrics, checkpoint=None, checkpoint_dir_name=None, **options):
    """Reports metrics, and keeps a checkpoint with them: all ranks call it, and wait for each
    other. Any of them may bring a checkpoint, or a part of it.
    """
    if options:
        raise NotImplementedError(f"golaunch does not serve report({', '.join(options)}); call it with metrics and a checkpoint")
    run = _current()
    run.number += 1
    directory = run.store.directory(run.number)
    if checkpoint is not None:
        shutil.copytree(checkpoint.path, directory, dirs_exist_ok=True)
    if run.meet(brings=checkpoint is not None):
        if run.rank == 0:
            run.store.add(run.number, metrics, run.config["checkpoints"])
        run.meet()  # until rank 0 has saved: a rank that went on and failed would end rank 0 too
        from ._config import Checkpoint

        run.checkpoint = Checkpoint(directory)


def get_checkpoint():
    """The latest checkpoint, or None."""
    return _current().checkpoint


class TrainContext:
    def get_world_rank(self):
        return _current().rank

    def get_world_size(self):
        return int(os.environ["WORLD_SIZE"])

    def get_local_rank(self):
        return int(os.environ["LOCAL_RANK"])

    def get_local_world_size(self):
        return int(os.environ["LOCAL_WORLD_SIZE"])

    def get_node_rank(self):
        return int(os.environ["GROUP_RANK"])

    def get_experiment_name(self):
        return os.path.basename(_current().store.path)

    def get_trial_name(self):
        raise NotImplementedError("golaunch does not serve get_trial_name; use get_experiment_name")

    def get_storage(self):
        raise NotImplementedError("golaunch does not serve get_storage; use the storage_path of RunConfig")


def get_context():
    return TrainContext()


def main(path):
    """Runs the function that a trainer has left in a directory."""
    global _run
    import cloudpickle

    with open(os.path.join(path, "function.pickle"), "rb") as f:
        program = pickle.load(f)
    sys.path[:] = [_here(p, program["directory"]) for p in program["path"]]
    try:
        function, argument = cloudpickle.loads(program["function"])
        _run = _Run(path, program)
        if _run.rank == 0:
            _run.store.tidy()
        if program["group"] is not None:
            _begin_group(program["gpu"], *program["group"])
        _run.meet()  # waits until rank 0 has removed the leftovers of earlier attempts
        value = function() if argument is None else function(argument)
        _run.meet()
        if _run.rank == 0:
            _leave(path, "value", cloudpickle.dumps(value))
    except Exception as error:
        try:
            body = cloudpickle.dumps(error)
        except Exception:
            body = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        _leave(path, f"error-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}", body)
        raise
    if program["group"] is not None:
        import torch.distributed as dist

        dist.destroy_process_group()


def _begin_group(gpu, backend, seconds):
    import torch
    import torch.distributed as dist

    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))


def _here(path, directory):
    """A path of the program on this node. If the path is in the working directory, it is in the
    node's copy of that directory.
    """
    if directory and os.path.commonpath([path, directory]) == directory:
        return os.path.join(os.getcwd(), os.path.relpath(path, directory))
    return path


def _leave(path, name, body):
    with open(os.path.join(path, name + ".new"), "wb") as f:
        f.write(body)
    os.rename(f.name, os.path.join(path, name))
