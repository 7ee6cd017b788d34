"""Remote functions."""

import functools
import inspect

from . import _objects, _options, _session
from ._core import Task


class RemoteFunction:
    def __init__(self, function, options):
        _options.check(options, _options.TASK, "functions")
        if inspect.iscoroutinefunction(function):
            raise ValueError("'async def' should not be used for remote tasks. You can wrap the async function with `asyncio.run(f())`. See more at: https://docs.ray.io/en/latest/ray-core/actors/async_api.html ")
        self._function, self._default_options = function, options
        self._function_name = f"{function.__module__}.{function.__qualname__}"
        self._name = getattr(function, "__name__", "function")
        self._made = self._prepared = None
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _takes(self):  # a function that names itself gets its defaults only after this is unpickled
        return takes(parameters(self._function))

    def __call__(self, *args, **kwargs):
        raise TypeError(f"Remote functions cannot be called directly. Instead of running '{self._function_name}()', try '{self._function_name}.remote()'.")

    def __reduce__(self):
        return RemoteFunction, (self._function, self._default_options)

    def remote(self, *args, **kwargs):
        return self._remote(args, kwargs, self._default_options)

    def options(self, **options):
        _options.check(options, _options.TASK, "functions")
        merged = _merged(self._default_options, options)

        class Wrapper:
            def remote(_, *args, **kwargs):
                return self._remote(args, kwargs, merged)

            def bind(_, *args, **kwargs):
                return self.bind()

        return Wrapper()

    def bind(self, *_args, **_kwargs):
        raise NotImplementedError("golaunch does not serve ray.dag; call .remote(), with references as arguments")

    def _remote(self, args, kwargs, options):
        core = _session.core()
        check(self._takes, args, kwargs)
        if self._made is None or self._made[0] is not core:
            body, buffers, nested = _objects.dumps(self._function)
            self._made = core, core.new_id(), (body, [bytes(b) for b in buffers]), nested
            self._prepared = None
        prepared = self._prepared
        if prepared is None or prepared[0] is not options:
            want = _options.wants(options, 1)
            env = _options.environment(options.get("runtime_env"), _session.env_of_job())
            prepared = self._prepared = options, want, env, _returns(options.get("num_returns"), self._function)
        _, want, env, count = prepared
        strategy = _options.strategy(options)
        task = Task()
        task.fid, task.function = self._made[1], self._made[2]
        task.pool = core.pool((tuple(sorted(want.items())), strategy, env["key"]), want, strategy, env)
        task.name, task.called = options.get("name") or self._name, self._name
        task.retries = 3 if options.get("max_retries") is None else options["max_retries"]
        task.retry_exceptions = options.get("retry_exceptions") or False
        task.parent = _session.task_id()
        return start(core, task, args, kwargs, count)


def parameters(function, bound=False):
    """The arguments that a function takes, without the first if that is bound, in a form that can
    be sent; None if the function does not tell.
    """
    try:
        known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if bound and known and known[0].kind != inspect.Parameter.VAR_POSITIONAL:
        del known[0]
    return tuple((p.name, int(p.kind), p.default is not p.empty) for p in known)


def takes(known):
    """The facts that check needs: a signature, or the least and the largest number of arguments if
    none has a name.
    """
    if known is None:
        return None, 0, float("inf")
    made = [inspect.Parameter(name, kind, default=None if optional else inspect.Parameter.empty) for name, kind, optional in known]
    least, most = 0, 0
    for p in made:
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            least, most = least + (p.default is p.empty), most + 1
        elif p.kind == p.VAR_POSITIONAL:
            most = float("inf")
        elif p.kind == p.KEYWORD_ONLY and p.default is p.empty:
            least = float("inf")
    return inspect.Signature(made), least, most


def check(known, args, kwargs):
    """Raises TypeError in the caller for arguments that a function does not take."""
    signature, least, most = known
    if signature is not None and (kwargs or not least <= len(args) <= most):
        signature.bind(*args, **kwargs)


def start(core, task, args, kwargs, count):
    """Submits a call, and returns the value of .remote()."""
    if count == "streaming":
        from ._generator import ObjectRefGenerator

        task.stream = ObjectRefGenerator(core, task)
        core.submit(task, args, kwargs)
        return task.stream
    task.count = count
    refs = core.submit(task, args, kwargs)
    return refs[0] if count == 1 else refs if count else None


def _returns(count, function):
    if count is None:
        return "streaming" if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function) else 1
    if count == "dynamic":
        raise NotImplementedError('golaunch does not serve num_returns="dynamic"; use num_returns="streaming"')
    if count != "streaming" and (not isinstance(count, int) or count < 0):
        raise ValueError(f"num_returns={count!r}: a number, or \"streaming\"")
    return count


def _merged(before, more):
    merged = {**before, **more}
    if before.get("runtime_env") and more.get("runtime_env"):
        merged["runtime_env"] = {**before["runtime_env"], **more["runtime_env"]}
        if before["runtime_env"].get("env_vars") and more["runtime_env"].get("env_vars"):
            merged["runtime_env"]["env_vars"] = {**before["runtime_env"]["env_vars"], **more["runtime_env"]["env_vars"]}
    return merged
