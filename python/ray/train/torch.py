"""Training with torch."""

import sys
from dataclasses import dataclass
from typing import Optional

from .._unserved import refuse
from . import _config, _rank
from .data_parallel_trainer import DataParallelTrainer

for _name in ("config", "torch_trainer", "train_loop_utils"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]


@dataclass
class TorchConfig(_config.BackendConfig):
    backend: Optional[str] = None
    init_method: str = "env"
    timeout_s: int = 1800

    def _group(self, gpu):
        return self.backend or ("nccl" if gpu else "gloo"), self.timeout_s


class TorchTrainer(DataParallelTrainer):
    """Runs a function in each of several processes, which are a torch.distributed group."""

    def __init__(self, train_loop_per_worker, *, torch_config=None, **options):
        super().__init__(train_loop_per_worker, backend_config=torch_config or TorchConfig(), **options)


def get_device():
    """The device of this rank."""
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if _rank._current().config["gpu"] else torch.device("cpu")


def get_devices():
    return [get_device()]


def prepare_model(model, move_to_device=True, parallel_strategy="ddp", parallel_strategy_kwargs=None):
    """The model on this rank's device, in DistributedDataParallel if there are several ranks."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if parallel_strategy not in ("ddp", None):
        raise NotImplementedError(f"golaunch does not serve parallel_strategy={parallel_strategy!r}; wrap the model with torch.distributed.fsdp in the function")
    device = get_device() if move_to_device is True else move_to_device
    if device:
        model = model.to(device)
    if parallel_strategy is None or dist.get_world_size() == 1:
        return model
    return DistributedDataParallel(model, **(parallel_strategy_kwargs or {}))


def prepare_data_loader(data_loader, add_dist_sampler=True, move_to_device=True, auto_transfer=True):
    """The loader with this rank's part of the data, on its device."""
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

    if add_dist_sampler and dist.get_world_size() > 1 and not isinstance(data_loader.sampler, DistributedSampler) and not isinstance(data_loader.dataset, IterableDataset):
        shuffle = isinstance(data_loader.sampler, RandomSampler)
        data_loader = DataLoader(
            data_loader.dataset, batch_size=data_loader.batch_size, num_workers=data_loader.num_workers, collate_fn=data_loader.collate_fn,
            pin_memory=data_loader.pin_memory, drop_last=data_loader.drop_last, timeout=data_loader.timeout, worker_init_fn=data_loader.worker_init_fn,
            sampler=DistributedSampler(data_loader.dataset, shuffle=shuffle))
    return _OnDevice(data_loader, get_device()) if move_to_device and get_device().type == "cuda" else data_loader


class _OnDevice:
    def __init__(self, loader, device):
        self._loader, self._device = loader, device

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def __len__(self):
        return len(self._loader)

    def __iter__(self):
        return (_moved(batch, self._device) for batch in self._loader)


def _moved(batch, device):
    if isinstance(batch, dict):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(value, device) for value in batch)
    return batch.to(device, non_blocking=True) if hasattr(batch, "to") else batch


def __getattr__(name):
    refuse(__name__, name)
