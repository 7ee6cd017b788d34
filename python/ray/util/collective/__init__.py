"""Collectives among actors and tasks, of NumPy arrays and torch tensors: they change these in place."""

import importlib.util
import logging
import threading

import ray

from ... import _session
from ..._unserved import refuse
from ._group import NAME, Group, meeting
from .types import Backend, ReduceOp

_lock = threading.RLock()
_groups, _turns = {}, {}  # the groups of this process, and how often each name was used
_declared = {}  # the groups that this process has declared: their meeting actors end with it


def nccl_available():
    return False


def gloo_available():
    return is_backend_available(Backend.GLOO)


def is_backend_available(backend):
    if backend.upper() != Backend.GLOO or importlib.util.find_spec("torch") is None:
        return False
    import torch.distributed as dist

    return dist.is_available() and dist.is_gloo_available()


def _inside():
    if _session.core().executor is None:
        raise RuntimeError("The collective APIs shall be only used inside a Ray actor or task.")


def is_group_initialized(group_name):
    return group_name in _groups


def init_collective_group(world_size, rank, backend=Backend.NCCL, group_name="default", gloo_timeout=30000):
    """Makes this process a member of a group, after rank 0. gloo_timeout is the time limit, in
    milliseconds, for joining and for each call.
    """
    _inside()
    if not group_name:
        raise ValueError(f"group_name '{group_name}' needs to be a string.")
    with _lock:
        if group_name in _groups:
            raise RuntimeError("Trying to initialize a group a second time.")
        assert world_size > 0 and 0 <= rank < world_size, f"rank {rank} of {world_size}"
        _gloo(backend)
        _create(group_name, world_size, rank, gloo_timeout)


def _gloo(backend):
    if backend.upper() not in (Backend.NCCL, Backend.GLOO):
        raise ValueError(f"Backend {backend.upper()} not registered")
    if backend.upper() == Backend.NCCL:
        raise NotImplementedError('golaunch does not serve NCCL in ray.util.collective; use backend="gloo", or torch.distributed with NCCL in the actors')
    if not gloo_available():
        raise RuntimeError("Backend GLOO is not available. Please check the installation: it needs torch.")


def _create(name, world_size, rank, timeout):
    turn = _turns.get(name, 0)
    _groups[name] = Group(name, world_size, rank, timeout, turn)
    _turns[name] = turn + 1


def create_collective_group(actors, world_size, ranks, backend=Backend.NCCL, group_name="default", gloo_timeout=30000):
    """Declares actors as a group. Each actor joins the group at its first collective."""
    try:
        ray.get_actor(NAME + group_name)
    except ValueError:
        pass
    else:
        raise RuntimeError("Trying to initialize a group twice.")
    if len(ranks) != len(actors):
        raise RuntimeError(f"Each actor should correspond to one rank. Got '{len(ranks)}' ranks but '{len(actors)}' actors")
    if set(ranks) != set(range(len(ranks))):
        raise RuntimeError(f"Ranks must be a permutation from 0 to '{len(ranks)}'. Got '{''.join(map(str, ranks))}'.")
    if world_size <= 0:
        raise RuntimeError(f"World size must be greater than zero. Got '{world_size}'.")
    if world_size != len(ranks):
        raise RuntimeError(f"The world size {world_size} is not the number of actors, {len(actors)}.")
    _gloo(backend)
    ids = {actor._ray_actor_id.binary(): rank for actor, rank in zip(actors, ranks)}
    made = _declared[group_name] = meeting(group_name, (ids, world_size, gloo_timeout))
    ray.get(made.declared.remote())


def destroy_collective_group(group_name="default"):
    """Ends this process's membership. A declared group must be declared again."""
    _inside()
    with _lock:
        group = _groups.pop(group_name, None)
        if group is None:
            logging.getLogger(__name__).warning("The group '%s' does not exist.", group_name)
            return
        group.destroy_group()
        try:
            declared = ray.get_actor(NAME + group_name)
            if ray.get(declared.declared.remote()) is not None:
                ray.kill(declared)
        except (ValueError, ray.exceptions.RayActorError):  # another member was faster
            pass


def get_rank(group_name="default"):
    """The rank of this process in a group, or -1."""
    _inside()
    return _groups[group_name].rank if group_name in _groups else -1


def get_collective_group_size(group_name="default"):
    _inside()
    return _groups[group_name].world_size if group_name in _groups else -1


def get_group_handle(group_name="default"):
    """The group. A process of a declared group joins the group here."""
    _inside()
    with _lock:
        if group_name not in _groups:
            try:
                declared = ray.get(ray.get_actor(NAME + group_name).declared.remote())
            except ValueError:
                declared = None
            rank = declared and declared[0].get(_session.core().executor.actor_id)
            if rank is None:
                raise RuntimeError(f"The collective group '{group_name}' is not initialized in the process.")
            _create(group_name, declared[1], rank, declared[2])
        return _groups[group_name]


def _tensor(value, written=True):
    """A torch tensor that shares the memory of a tensor or an array."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if type(value).__module__ != "numpy":
        raise RuntimeError(f"Unrecognized tensor type '{type(value)}'. Supported types are: np.ndarray, torch.Tensor, cupy.ndarray.")
    if written and not value.flags.writeable:
        raise ValueError("the array is read-only, as one from ray.get is: pass a copy of it")
    return torch.from_numpy(value if value.flags.writeable else value.copy())


def _tensors(values, written):
    if not isinstance(values, list):
        raise RuntimeError(f"The input must be a list of tensors. Got '{type(values)}'.")
    if not values:
        raise RuntimeError("Got an empty list of tensors.")
    return [_tensor(value, written) for value in values]


def _peer(group, rank, what=None):
    if rank < 0:
        raise ValueError(f"rank '{rank}' is negative.")
    if rank >= group.world_size:
        raise ValueError(f"rank '{rank}' must be less than world size '{group.world_size}'")
    if what is not None and rank == group.rank:
        raise RuntimeError(f"The {what} rank '{rank}' is self.")
    return rank


def allreduce(tensor, group_name="default", op=ReduceOp.SUM):
    get_group_handle(group_name).allreduce(_tensor(tensor), op)


def reduce(tensor, dst_rank=0, group_name="default", op=ReduceOp.SUM):
    group = get_group_handle(group_name)
    group.reduce(_tensor(tensor, group.rank == dst_rank), _peer(group, dst_rank), op)


def broadcast(tensor, src_rank=0, group_name="default"):
    group = get_group_handle(group_name)
    group.broadcast(_tensor(tensor, group.rank != src_rank), _peer(group, src_rank))


def _each(group, tensors):
    if len(tensors) != group.world_size:
        raise RuntimeError(f"The length of the tensor list operands must be equal to world_size. Got {len(tensors)} for {group.world_size}.")
    return tensors


def allgather(tensor_list, tensor, group_name="default"):
    group = get_group_handle(group_name)
    group.allgather(_each(group, _tensors(tensor_list, True)), _tensor(tensor, False))


def reducescatter(tensor, tensor_list, group_name="default", op=ReduceOp.SUM):
    group = get_group_handle(group_name)
    group.reducescatter(_tensor(tensor), _each(group, _tensors(tensor_list, False)), op)


def send(tensor, dst_rank, group_name="default"):
    group = get_group_handle(group_name)
    group.send(_tensor(tensor, False), _peer(group, dst_rank, "destination"))


def recv(tensor, src_rank, group_name="default"):
    group = get_group_handle(group_name)
    group.recv(_tensor(tensor), _peer(group, src_rank, "source"))


def barrier(group_name="default"):
    get_group_handle(group_name).barrier()


def __getattr__(name):
    refuse(__name__, name)
