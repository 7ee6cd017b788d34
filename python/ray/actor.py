"""Actors: remote classes, their handles and methods."""

import functools
import inspect
import os
import types

from . import _objects, _options, _session
from . import exceptions as errors
from ._core import Task
from ._ids import ActorID
from .remote_function import _merged, check, parameters, start, takes

_BUILTIN = {"__ray_call__", "__ray_ready__", "__ray_terminate__"}
_METHOD = {"num_returns", "max_task_retries", "retry_exceptions", "name", "enable_task_events", "concurrency_group", "_generator_backpressure_num_objects",
           "tensor_transport"}


class ActorClassInheritanceException(TypeError):
    """A class inherits from a remote class."""


def method(*args, **options):
    """Options of a method: num_returns, max_task_retries, retry_exceptions."""
    for name in options:
        if name not in _METHOD:
            raise ValueError(f"Invalid option keyword {name} for actor methods. Valid ones are {sorted(_METHOD)}.")
        if name in ("concurrency_group", "tensor_transport"):
            raise NotImplementedError(f"golaunch does not serve the option {name} of a method; use max_concurrency")
    if args or not options:
        raise ValueError("The @ray.method decorator must be applied using no arguments or at least one of the arguments in the list "
                         f"{sorted(_METHOD)}. It can also be applied as @ray.method(num_returns=2).")

    def annotate(function):
        function.__ray_method_options__ = options
        return function

    return annotate


def actor_class(cls, options):
    """The type of an actor class names the original class, as programs expect."""
    return type(f"ActorClass({cls.__name__})", (ActorClass,), {})(cls, options)


class ActorClass:
    """A class that ray.remote was applied to. It has the attributes of the original class."""

    def __init__(self, cls, options):
        _options.check(options, _options.ACTOR, "actors")
        self._cls, self._options = cls, options
        self._made = None
        self.__ray_metadata__ = _Metadata(cls)
        self.__name__, self.__qualname__, self.__module__, self.__doc__ = cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__

    @functools.cached_property
    def _takes(self):  # a class that names itself is unpickled only later
        return takes(parameters(self._cls))

    @functools.cached_property
    def _methods(self):
        return _methods(self._cls)

    @property
    def __ray_actor_class__(self):
        return self._cls

    def __call__(self, *args, **kwargs):
        raise TypeError(f"Actors cannot be instantiated directly. Instead of '{self._cls.__name__}()', use '{self._cls.__name__}.remote()'.")

    def __repr__(self):
        return f"ActorClass({self._cls.__name__})"

    def __reduce__(self):
        return actor_class, (self._cls, self._options)

    def __getattr__(self, name):
        if name.startswith("__") or "_cls" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        value = getattr(self._cls, name)
        if inspect.isfunction(value) and not isinstance(inspect.getattr_static(self._cls, name), staticmethod):
            # As in Ray. cloudpickle would find the function itself in its module here, and actors would import that.
            return types.MethodType(value, self)
        return value

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._cls)})

    def __mro_entries__(self, bases):
        raise ActorClassInheritanceException(f"Inheriting from actor classes is not currently supported. Attempted to inherit from {self._cls.__name__}.")

    def remote(self, *args, **kwargs):
        return self._remote(args, kwargs)

    def options(self, **options):
        _options.check(options, _options.ACTOR, "actors")
        merged = _merged(self._options, options)

        class Wrapper:
            def remote(_, *args, **kwargs):
                return self._remote(args, kwargs, **merged)

            def bind(_, *args, **kwargs):
                return self.bind()

        return Wrapper()

    def bind(self, *_args, **_kwargs):
        raise NotImplementedError("golaunch does not serve ray.dag; call .remote(), with references as arguments")

    def _remote(self, args=(), kwargs=None, **options):
        options = options or self._options
        core = _session.core()
        name, namespace = options.get("name"), options.get("namespace") or _session.namespace()
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError("Actor name cannot be an empty string." if name == "" else f"name must be None or a string, got: '{type(name)}'.")
        if options.get("get_if_exists"):
            if not name:
                raise ValueError("The actor name must be specified to use `get_if_exists`.")
            try:
                return get_actor(name, namespace=namespace)
            except ValueError:
                pass
        lifetime = options.get("lifetime")
        if lifetime not in (None, "detached", "non_detached"):
            raise ValueError("actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'.")
        restarts = options.get("max_restarts") or 0
        retries = options.get("max_task_retries") or 0
        if self._made is None:
            body, buffers, nested = _objects.dumps(self._cls)
            self._made = (body, [bytes(b) for b in buffers]), nested
        if any(options.get(name) is not None for name in ("num_cpus", "num_gpus", "resources")):
            runs = placed = _options.wants(options, 1)
        else:  # as in Ray, such an actor needs a CPU to start, but none to run
            runs = _options.wants(options, 0)
            placed = {**runs, "CPU": 1}
        actor_id = os.urandom(12) + bytes.fromhex(core.job["id"])
        methods, taken = self._methods
        meta = {"class": self._cls.__name__, "methods": methods, "takes": taken, "name": name, "namespace": namespace, "max_task_retries": retries,
                "module": self._cls.__module__, "max_pending_calls": options.get("max_pending_calls") or -1}
        spec = {
            "name": name, "namespace": namespace, "job": core.job["id"], "detached": lifetime == "detached", "class": self._cls.__name__, "blob": self._made[0],
            "placed": placed, "runs": runs, "strategy": _options.strategy(options),
            "env": _options.environment(options.get("runtime_env"), _session.env_of_job()), "max_restarts": restarts,
            "max_concurrency": options.get("max_concurrency"), "handle": meta,
        }
        check(self._takes, args, kwargs or {})
        args_body, deps, pins = core.arguments(args, kwargs or {})
        body = None if deps else (args_body, ())
        try:
            core.ask(core.head, "actor", actor_id, spec, core.proc, body, late=lambda _: core.head.send("unhold", actor_id))
        except errors.ActorAlreadyExistsError:
            if options.get("get_if_exists"):
                return get_actor(name, namespace=namespace)
            raise
        core.creates = True
        link = core.actor(actor_id, meta)
        link.pins = pins  # a restart needs the arguments again
        if deps:
            core.resolve_actor(link, args_body, deps)
        return ActorHandle(link, core, meta)


class _Metadata:
    def __init__(self, cls):
        self.modified_class, self.class_name = cls, cls.__name__


def _methods(cls):
    """The methods of a class, their options, and the arguments that they take."""
    methods, taken = {}, {}
    for name, function in inspect.getmembers(cls, lambda m: inspect.isfunction(m) or inspect.ismethod(m) or inspect.isbuiltin(m)):
        options = dict(getattr(function, "__ray_method_options__", {}))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            options.setdefault("num_returns", "streaming")
        methods[name] = options
        taken[name] = parameters(function, inspect.isfunction(function) and not isinstance(inspect.getattr_static(cls, name), staticmethod))
    return methods, taken


class ActorMethod:
    """A method of an actor: call it with .remote()."""

    __slots__ = ("_handle", "_name", "_options")

    def __init__(self, handle, name, options):
        self._handle, self._name, self._options = handle, name, options

    def __call__(self, *args, **kwargs):
        raise TypeError(f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', try 'object.{self._name}.remote()'.")

    def remote(self, *args, **kwargs):
        return self._remote(args, kwargs, self._options)

    def options(self, **options):
        for name in options:
            if name not in _METHOD:
                raise ValueError(f"Invalid option keyword {name} for actor methods. Valid ones are {sorted(_METHOD)}.")
        return ActorMethod(self._handle, self._name, {**self._options, **options})

    def bind(self, *_args, **_kwargs):
        raise NotImplementedError("golaunch does not serve ray.dag; call .remote(), with references as arguments")

    def _remote(self, args, kwargs, options):
        handle = self._handle
        core, link = handle._core, handle._link
        known = link.takes.get(self._name)
        if known is None:
            known = link.takes[self._name] = takes(handle._meta["takes"].get(self._name))
        check(known, args, kwargs)
        most = handle._meta["max_pending_calls"]
        if most > 0 and len(link.tasks) + len(link.queue) >= most:
            raise errors.PendingCallsLimitExceeded(
                f"{handle._meta['class']}.{self._name} is not called: {most} calls of this process wait for the actor's answer, as many as its option max_pending_calls allows")
        task = Task()
        task.actor, task.method = link, self._name
        task.called = f"{handle._meta['class']}.{self._name}"
        task.name = options.get("name") or task.called
        retries = options.get("max_task_retries")
        task.retries = handle._meta["max_task_retries"] if retries is None else retries
        task.retry_exceptions = options.get("retry_exceptions") or False
        task.parent = _session.task_id()
        count = options.get("num_returns")
        if count == "dynamic":
            raise NotImplementedError('golaunch does not serve num_returns="dynamic"; use num_returns="streaming"')
        return start(core, task, args, kwargs, 1 if count is None else count)


class ActorHandle:
    """An actor, wherever it runs. An actor ends with its last handle, unless it is detached."""

    def __init__(self, link, core, meta):
        self._link, self._core, self._meta = link, core, meta

    def __del__(self):
        core = self.__dict__.get("_core")
        if core is not None:
            core.dropped((self._link.id,))

    @property
    def _actor_id(self):
        return ActorID(self._link.id)

    @property
    def _ray_actor_id(self):
        return ActorID(self._link.id)

    @property
    def _actor_method_num_returns(self):
        return {name: options.get("num_returns", 1) for name, options in self._meta["methods"].items()}

    def __getattr__(self, name):
        meta = self.__dict__.get("_meta")
        if meta is None or name not in meta["methods"] and name not in _BUILTIN:
            raise AttributeError(f"'{meta['class'] if meta else 'ActorHandle'}' object has no attribute '{name}'")
        made = ActorMethod(self, name, meta["methods"].get(name, {}))
        return made

    def __dir__(self):
        return list(self._meta["methods"]) + ["__ray_call__", "__ray_ready__", "__ray_terminate__"]

    def __repr__(self):
        return f"Actor({self._meta['class']}, {self._link.id.hex()})"

    def __eq__(self, other):
        return isinstance(other, ActorHandle) and other._link.id == self._link.id

    def __hash__(self):
        return hash(self._link.id)

    def _token(self):
        return "actor", self._link.id, None

    def __reduce__(self):
        _objects.noted(self)
        return _adopted, (self._link.id, self._meta, self._core.session)


def _adopted(actor_id, meta, session):
    core = _session.core()
    if core.session != session:
        raise ValueError("this ActorHandle is of another cluster, or of one that was shut down")
    return ActorHandle(core.hold_actor(actor_id, meta), core, meta)


def get_actor(name, namespace=None):
    """A handle of the actor with a name."""
    if not name:
        raise ValueError("Please supply a non-empty value to get_actor")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace.' if namespace == "" else "namespace must be None or a string.")
    core = _session.core()
    found, _ = core.ask(core.head, "named", name, namespace or _session.namespace(), late=lambda found: found and core.head.send("unhold", found[0]))
    if found is None:
        raise ValueError(f"Failed to look up actor with name '{name}'. This could because 1. You are trying to look up a named actor you didn't create. "
                         "2. The named actor died. 3. You did not use a namespace matching the namespace of the actor.")
    actor_id, meta = found
    with core.lock:
        if actor_id in core.actors and core.actors[actor_id].handles:
            core.head.send("unhold", actor_id)
        return ActorHandle(core.actor(actor_id, meta), core, meta)


def exit_actor():
    """Ends the actor in whose method it is called."""
    from ._worker import ActorExit

    executor = _session.core().executor
    if executor is None or executor.actor_id is None:
        raise TypeError("exit_actor called on a non-actor worker.")
    raise ActorExit
