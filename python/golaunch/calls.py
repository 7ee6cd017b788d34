"""Calls of the methods of a group's workers."""


class Calls:
    """Calls of methods, with the names of NeMo RL's RayWorkerGroup. Each returns a Future."""

    def run_all_workers_single_data(self, method_name, *args, run_rank_0_only_axes=None, **kwargs):
        """Calls a method of all workers with the same arguments. Along the axes in
        run_rank_0_only_axes, only the first worker is called.
        """
        workers = self._group._first_of(run_rank_0_only_axes)
        return self._group._call(method_name, workers, [(args, kwargs)] * len(workers), self._seconds)

    def run_all_workers_multiple_data(self, method_name, *args, run_rank_0_only_axes=None, common_kwargs=None, **kwargs):
        """Calls a method of all workers. Each worker gets its own element of each list, and all get
        the same common_kwargs.
        """
        workers = self._group._first_of(run_rank_0_only_axes)
        for name, values in list(enumerate(args)) + list(kwargs.items()):
            if not hasattr(values, "__len__") or len(values) != len(workers):
                size = f"{len(values)} elements" if hasattr(values, "__len__") else f"a {type(values).__name__}"
                raise ValueError(f"argument {name!r} of {method_name} has {size}, and {len(workers)} workers are called: one for each")
        return self._group._call(method_name, workers, [
            (tuple(values[i] for values in args), dict({k: v[i] for k, v in kwargs.items()}, **(common_kwargs or {}))) for i in range(len(workers))
        ], self._seconds)

    def run_all_workers_sharded_data(self, method_name, *args, in_sharded_axes=None, replicate_on_axes=None, output_is_replicated=None,
                                     make_dummy_calls_to_free_axes=False, common_kwargs=None, **kwargs):
        """Calls a method with data that is split along in_sharded_axes: each argument is a list, of
        lists for a second axis, and so on.

        Along replicate_on_axes workers get the same data. Along all other axes only the first
        worker is called; with make_dummy_calls_to_free_axes the others are called with None. Along
        output_is_replicated only the first worker's result is returned.
        """
        group, sharding = self._group, self._group.sharding
        sharded, replicated, once = list(in_sharded_axes or ()), set(replicate_on_axes or ()), set(output_is_replicated or ())
        for axis in set(sharded) | replicated | once:
            if axis not in sharding.names:
                raise ValueError(f"no axis {axis!r}: there are {sharding.names}")
        both = set(sharded) & replicated
        if both:
            raise ValueError(f"axes {sorted(both)} cannot be both sharded and replicated")
        for name, values in list(enumerate(args)) + list(kwargs.items()):
            _check_split(method_name, name, values, sharded, sharding)
        common = common_kwargs or {}
        workers, calls, returned, made = [], [], [], {}
        for w in range(len(sharding)):
            at = sharding.get_worker_coords(w)
            called = all(at[a] == 0 for a in sharding.names if a not in sharded and a not in replicated)
            if called and all(at[a] == 0 for a in once):
                returned.append(w)
            if called:
                key = tuple(at[a] for a in sharded)
                if key not in made:  # one pickle for all workers that get the same arguments
                    made[key] = (tuple(_part(v, key) for v in args), dict({k: _part(v, key) for k, v in kwargs.items()}, **common))
                workers.append(w)
                calls.append(made[key])
            elif make_dummy_calls_to_free_axes:
                workers.append(w)
                calls.append(made.setdefault(None, (tuple(None for _ in args), dict({k: None for k in kwargs}, **common))))
        return group._call(method_name, workers, calls, self._seconds, returned=returned)

    def run_single_worker_single_data(self, method_name, worker_idx, *args, **kwargs):
        """Calls a method of one worker. The returned future's result() is the result itself, not a
        list.
        """
        group = self._group
        if not isinstance(worker_idx, int) or not 0 <= worker_idx < len(group.workers):
            raise IndexError(f"no worker {worker_idx!r}: {group.name} has 0 to {len(group.workers) - 1}")
        return group._call(method_name, [worker_idx], [(args, kwargs)], self._seconds, single=True)


class View(Calls):
    """The calls of a group, each of which must end within a number of seconds."""

    def __init__(self, group, seconds):
        self._group, self._seconds = group, seconds


def _part(value, position):
    for i in position:
        value = value[i]
    return value


def _check_split(method, name, values, axes, sharding, depth=0):
    if depth == len(axes):
        return
    size = sharding.get_axis_size(axes[depth])
    if not hasattr(values, "__len__") or len(values) != size:
        has = f"{len(values)} elements" if hasattr(values, "__len__") else f"a {type(values).__name__}"
        raise ValueError(f"argument {name!r} of {method} has {has} along {axes[depth]!r}, and that axis {size} workers")
    for inner in values:
        _check_split(method, name, inner, axes, sharding, depth + 1)
