"""verl's names for its single controller, on golaunch. docs/from-verl.md says how to switch, and
what differs. It needs verl, and no running Ray.

    from golaunch.verl import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, get
"""

import secrets
from functools import partial

from verl import DataProto
from verl.protocol import DataProtoFuture, _padding_size_key
from verl.single_controller.base import ClassWithInitArgs, ResourcePool
from verl.single_controller.base import WorkerGroup as _Base
from verl.single_controller.base import decorator as _decorator

from .cluster import VirtualCluster
from .group import WorkerGroup
from .hosted import Handle, described, get, plain

__all__ = [
    "RayClassWithInitArgs", "RayResourcePool", "RayWorkerGroup", "ResourcePoolManager", "create_colocated_worker_cls", "create_colocated_worker_cls_fused", "get",
]


class RayResourcePool(ResourcePool):
    """Bundles for workers, process_on_nodes of them on each node. options are those of golaunch's
    VirtualCluster, such as address.
    """

    def __init__(self, process_on_nodes=None, use_gpu=True, name_prefix=None, max_colocate_count=10, detached=False, accelerator_type=None, **options):
        super().__init__(process_on_nodes, max_colocate_count)
        _refuse(detached=detached or None, why="what a program has begun with golaunch ends with it")
        _refuse(accelerator_type=accelerator_type, why="golaunch does not tell kinds of GPUs apart")
        self.use_gpu, self.name_prefix, self.detached, self._options = use_gpu, name_prefix or secrets.token_hex(3), False, options
        self._cluster = None

    @property
    def cluster(self):
        """golaunch's VirtualCluster, from the first group on."""
        if self._cluster is None:
            self._cluster = VirtualCluster(list(self.store), use_gpus=self.use_gpu, colocate=self.max_colocate_count, **self._options)
        return self._cluster

    def shutdown(self):
        """Ends all groups of the pool and gives its bundles back, as the end of the program does.
        """
        if self._cluster is not None:
            self._cluster.close()


class ResourcePoolManager:
    """Pools by their names, and the pool of each role."""

    def __init__(self, resource_pool_spec, mapping, max_colocate_count=3, resource_pool_dict=None, **options):
        self.resource_pool_spec, self.mapping, self.max_colocate_count = resource_pool_spec, mapping, max_colocate_count
        self.resource_pool_dict = {} if resource_pool_dict is None else resource_pool_dict
        self._options = options

    def create_resource_pool(self):
        for name, numbers in self.resource_pool_spec.items():
            self.resource_pool_dict[name] = RayResourcePool(
                numbers, name_prefix=name, max_colocate_count=self.max_colocate_count, **{"use_gpu": True, **self._options})

    def get_resource_pool(self, role):
        return self.resource_pool_dict[self.mapping[role]]

    def get_n_gpus(self):
        return sum(sum(numbers) for numbers in self.resource_pool_spec.values())


class RayClassWithInitArgs(ClassWithInitArgs):
    """A class of workers, or an actor of ray.remote, and the arguments of its objects."""

    roles = None  # the parts of a worker of several roles, by name

    def update_options(self, options):
        unknown = sorted(set(options) - {"runtime_env"}) + sorted(set(options.get("runtime_env", {})) - {"env_vars"})
        if unknown:
            raise ValueError(f"golaunch has no options {unknown} of actors, only the variables in runtime_env; use WorkerGroup's options for the rest")
        self.env = {**getattr(self, "env", {}), **options.get("runtime_env", {}).get("env_vars", {})}

    def set_additional_resource(self, additional_resource):
        _refuse(additional_resource=additional_resource or None, why="it has no resources by names")


def create_colocated_worker_cls(class_dict):
    """Workers with an object of each class in one process: spawn() of their group returns a group
    for each.
    """
    all_ = RayClassWithInitArgs(None)
    all_.roles = dict(class_dict)
    return all_


create_colocated_worker_cls_fused = create_colocated_worker_cls


class RayWorkerGroup(_Base):
    """Workers whose methods have the decorator `register`, which says how to call them. options are
    those of golaunch's WorkerGroup, such as restart.
    """

    def __init__(self, resource_pool=None, ray_cls_with_init=None, bin_pack=True, name_prefix=None, detached=False, worker_names=None, worker_handles=None,
                 ray_wait_register_center_timeout=300, *, device_name="cuda", profile_steps=None, worker_nsight_options=None, worker_env=None, use_gpu=None,
                 master_addr=None, master_port=None, master_port_range=None, **options):
        _refuse(worker_names=worker_names, worker_handles=worker_handles, why="workers are those of the group that made them; spawn() has groups of their roles")
        _refuse(detached=detached or None, why="what a program has begun with golaunch ends with it")
        _refuse(worker_nsight_options=worker_nsight_options, why="start the profiler in the class")
        _refuse(master_addr=master_addr, master_port=master_port, master_port_range=master_port_range, why="golaunch chooses where ranks meet")
        if not isinstance(resource_pool, RayResourcePool):
            raise ValueError(f"resource_pool={resource_pool!r}: a RayResourcePool of golaunch.verl")
        super().__init__(resource_pool=resource_pool)
        self.ray_cls_with_init, self.resource_pool, self.device_name, self.profile_steps = ray_cls_with_init, resource_pool, device_name, profile_steps
        self.name_prefix = name_prefix or secrets.token_hex(3)
        self.use_gpu = resource_pool.use_gpu if use_gpu is None else use_gpu
        self._roles = getattr(ray_cls_with_init, "roles", None) or {"": ray_cls_with_init}
        env = {"WG_PREFIX": self.name_prefix, "WG_BACKEND": "ray"}
        for one in [ray_cls_with_init, *self._roles.values()]:
            env.update(getattr(one, "env", {}))
        env.update(worker_env or {})
        name = f"{self.name_prefix}-{'-'.join(self._roles) or plain(ray_cls_with_init.cls).__name__}-{secrets.token_hex(2)}"
        self.group = WorkerGroup(
            resource_pool.cluster, "golaunch.hosted:make", {role: described(c.cls, c.args, c.kwargs) for role, c in self._roles.items()}, env=env,
            name="".join(c if c.isalnum() else "-" for c in name.lower()), use_gpus=self.use_gpu, **options)
        self._workers = [Handle(w) for w in self.group.workers]
        self._worker_names = [f"{self.group.name}:{w.rank}" for w in self.group.workers]
        for role, one in self._roles.items():
            self._bind(plain(one.cls), role + "_" if role else "", role + "_" if role else "")

    def _bind(self, cls, remote, local):
        """Gives this group the registered methods of a class, under their names at the workers."""
        for name in dir(cls):
            how = getattr(getattr(cls, name, None), _decorator.MAGIC_ATTR, None)
            if how is not None and how["dispatch_mode"] != _decorator.Dispatch.DIRECT_ROLLOUT_METHOD:
                setattr(self, local + name, _Registered(self, remote, name, how))

    def spawn(self, prefix_set):
        """A group for each role, with its class's methods under their own names, and the same
        workers.
        """
        return {role: self._of(role) for role in prefix_set}

    def fuse(self, prefix_set):
        for role, group in self.spawn(prefix_set).items():
            setattr(self, role, group)

    def _of(self, role):
        view = object.__new__(type(self))
        view.__dict__.update({k: v for k, v in self.__dict__.items() if not isinstance(v, _Registered)})
        view._dispatch_info, view._collect_info = {}, {}
        view._bind(plain(self._roles[role].cls), role + "_", "")
        return view

    @property
    def world_size(self):
        return len(self.group.workers)

    @property
    def workers(self):
        """The workers as handles: handle.method.remote(...) returns what get() waits for."""
        return self._workers

    @property
    def worker_names(self):
        return self._worker_names

    def _is_worker_alive(self, worker):
        self.group.cluster._turn()
        return worker._worker.state == "ready"

    def execute_all_async(self, method_name, *args, **kwargs):
        """Calls all workers. If all arguments are lists with an element for each worker, each gets
        its own.
        """
        n, made = self.world_size, {}
        each = all(isinstance(a, list) and len(a) == n for a in (*args, *kwargs.values()))
        calls = []
        for i in range(n):
            mine = tuple(a[i] for a in args) if each else args
            named = {k: v[i] for k, v in kwargs.items()} if each else kwargs
            # One pickle for all workers that get the same.
            calls.append(made.setdefault((*map(id, mine), *map(id, named.values())), (mine, named)))
        return self.group._call(method_name, range(n), calls)

    def execute_all_sync(self, method_name, *args, **kwargs):
        return get(self.execute_all_async(method_name, *args, **kwargs))

    execute_all = execute_all_async

    def execute_rank_zero_async(self, method_name, *args, **kwargs):
        return self.group.run_single_worker_single_data(method_name, 0, *args, **kwargs)

    def execute_rank_zero_sync(self, method_name, *args, **kwargs):
        return get(self.execute_rank_zero_async(method_name, *args, **kwargs))

    execute_rank_zero = execute_rank_zero_async

    def active(self, timeout=None):
        """The group's turn on its GPUs, as in golaunch's WorkerGroup."""
        return self.group.active(timeout)

    def shutdown(self):
        """Ends the workers of all roles."""
        return self.group.shutdown()


class _Registered:
    """A method of a group: its arguments are dispatched to workers, and their results collected, as
    `register` says.
    """

    def __init__(self, group, remote, name, how):
        self._group, self._name, self._blocking = group, remote + name, how["blocking"]
        mode = how["dispatch_mode"]
        ways = mode if isinstance(mode, dict) else _decorator.get_predefined_dispatch_fn(dispatch_mode=mode)
        self._dispatch, self._collect = _dispatching(ways["dispatch_fn"]), ways["collect_fn"]
        self._execute = getattr(group, _decorator.get_predefined_execute_fn(execute_mode=how["execute_mode"])["execute_fn_name"])
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        args = [a.get() if isinstance(a, Later) else a for a in args]
        kwargs = {k: v.get() if isinstance(v, Later) else v for k, v in kwargs.items()}
        args, kwargs = self._dispatch(self._group, *args, **kwargs)
        padding = kwargs.pop(_padding_size_key, 0)
        later = Later(self._execute(self._name, *args, **kwargs), partial(self._collect, self._group), padding)
        return later.get() if self._blocking else later


class Later(DataProtoFuture):
    """The result of a method with blocking=False: get() waits for it. Another group's method takes
    it as an argument, and waits too.
    """

    _golaunch_result = True

    def __init__(self, future, collect, padding):
        super().__init__(collect_fn=collect, futures=[future])
        self._padding = padding

    def done(self):
        return self.futures[0].done()

    def result(self, timeout=None):
        return _unpadded(self.collect_fn(self.futures[0].result(timeout)), self._padding)

    get = result

    def chunk(self, chunks):
        return self.get().chunk(chunks=chunks)


def _unpadded(output, padding):
    """The results without those of the padding in the last chunk."""
    if not padding:
        return output
    if isinstance(output, DataProto):
        return output.select_idxs(list(range(len(output) - padding)))
    return output[:-padding] if isinstance(output, list) else output


def _dispatching(dispatch):
    """The same dispatch. Only that of verl's meshes differs, which puts data into Ray's object
    store: here the call carries the data.
    """
    if isinstance(dispatch, partial):
        if dispatch.func is _decorator.dispatch_lazy_compute_data_proto:
            return partial(_by_mesh, *dispatch.args)
        if dispatch.func is _decorator.dispatch_nd_compute_dataproto:
            return partial(_split_by, *dispatch.args)
        if dispatch.func is _decorator.dispatch_nd_compute:
            return partial(_by_ranks, *dispatch.args)
    return dispatch


def _by_mesh(mesh, group, *args, **kwargs):
    if mesh not in group._dispatch_info:
        group._dispatch_info[mesh] = group._query_dispatch_info(mesh)
    ranks = group._dispatch_info[mesh]
    return _split_by(ranks, max(ranks) + 1, group, *args, **kwargs)


def _split_by(ranks, size, group, *args, **kwargs):
    args, kwargs = _decorator._split_args_kwargs_data_proto(size, *args, **kwargs)
    return _by_ranks(ranks, size, group, *args, **kwargs)


def _by_ranks(ranks, size, group, *args, **kwargs):
    """Each worker gets the element of its rank along the mesh."""
    for a in (*args, *kwargs.values()):
        if len(a) != size:
            raise ValueError(f"an argument has {len(a)} parts, and the mesh {size}: one for each")
    return [[a[r] for r in ranks] for a in args], {k: [v[r] for r in ranks] for k, v in kwargs.items()}


def _refuse(why, **options):
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} is not there with golaunch: {why}; leave it out")
