"""What the names of NeMo RL and verl share: descriptions of classes, handles of workers, and
results of calls.
"""

import contextlib
import functools
import os
import pickle
import sys

from .cluster import main_program
from .future import Future


def get(what, timeout=None):
    """The results of a call, or of a list of calls, as from ray.get. timeout, in seconds, is for
    each.
    """
    if isinstance(what, (list, tuple)):
        return [get(w, timeout) for w in what]
    if isinstance(what, Future) or hasattr(what, "_golaunch_result"):
        return what.result(timeout)
    return what


class Handle:
    """A worker as a Ray actor: handle.method.remote(...) returns a future."""

    def __init__(self, worker):
        self._worker = worker

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Method(self._worker, name)

    def __repr__(self):
        return repr(self._worker)


class _Method:
    def __init__(self, worker, name):
        self._worker, self._name = worker, name

    def remote(self, *args, **kwargs):
        return self._worker.call(self._name, *args, **kwargs)


def described(cls, args, kwargs):
    """A class by its name, which a worker imports, and the arguments of its object."""
    cls = plain(cls)
    name = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
    if ":" not in name or "<locals>" in name:
        raise ValueError(f"{name!r}: a class of a module, which workers can import")
    if name.startswith("__main__:"):
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # the name by which workers import it
    return {"class": name, "main": main_program() if name.startswith("__main__:") else None, "made": pickle.dumps((args, kwargs), 5)}


def plain(cls):
    """The class behind an actor of ray.remote."""
    return getattr(cls, "__ray_actor_class__", cls)


# In the worker


def find(description):
    """The class of a description, and its arguments."""
    from .worker import _find

    cls = plain(_find(description["class"], description["main"]))
    args, kwargs = pickle.loads(description["made"])
    return cls, args, kwargs


def waiting(made):
    """The object itself, or for one with coroutines an object that runs each to its end, one at a
    time.
    """
    import inspect

    return Waiting(made) if any(inspect.iscoroutinefunction(m) for _, m in inspect.getmembers(type(made))) else made


class Waiting:
    def __init__(self, made):
        self._made = made
        self._loop = None

    def __getattr__(self, name):
        import inspect

        value = getattr(self._made, name)
        return functools.partial(self._run, value) if inspect.iscoroutinefunction(value) else value

    def _run(self, method, *args, **kwargs):
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(method(*args, **kwargs))
        with _Urgent(self._loop, task) as urgent:
            try:
                return self._loop.run_until_complete(task)
            except asyncio.CancelledError:
                if urgent.raised is not None:
                    raise urgent.raised from None
                raise


class _Urgent:
    """Makes a loop handle SIGURG, by which a worker learns that a call is cancelled: it cancels the
    task.

    The worker's own handler would raise in the middle of the loop's work and lose it: the next step
    of a coroutine, for which the next call would wait forever.
    """

    def __init__(self, loop, task):
        self.loop, self.task, self.raised = loop, task, None

    def __enter__(self):
        import signal

        self.signal = signal
        with self._held():
            self.handler = signal.getsignal(signal.SIGURG)
            self.loop.add_signal_handler(signal.SIGURG, self._come)
        return self

    def __exit__(self, *_):
        with self._held():
            self.loop.remove_signal_handler(self.signal.SIGURG)
            self.signal.signal(self.signal.SIGURG, self.handler)

    def _come(self):
        if not callable(self.handler) or self.raised is not None:
            return
        try:
            self.handler(self.signal.SIGURG, None)
        except BaseException as error:
            self.raised = error
            self.task.cancel()

    @contextlib.contextmanager
    def _held(self):
        """The signal is pending."""
        before = self.signal.pthread_sigmask(self.signal.SIG_BLOCK, {self.signal.SIGURG})
        try:
            yield
        finally:
            self.signal.pthread_sigmask(self.signal.SIG_SETMASK, before)


def own_gpu():
    """Shows this process only its GPU, like a Ray actor, whose local rank is 0."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    at = int(os.environ["LOCAL_RANK"])
    if len(visible) > 1 and at < len(visible):
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[at]
    os.environ.update(RAY_LOCAL_RANK=str(at), RAY_LOCAL_WORLD_SIZE=os.environ["LOCAL_WORLD_SIZE"], LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")


def make(roles):
    """A worker of verl: the object of its class, or several objects by their roles."""
    own_gpu()
    if "" in roles:
        cls, args, kwargs = find(roles[""])
        return waiting(cls(*args, **kwargs))
    made = {}
    os.environ["DISABLE_WORKER_INIT"] = "1"  # verl's word for an object that is not the worker itself
    try:
        for role, description in roles.items():
            cls, args, kwargs = find(description)
            made[role] = cls(*args, **kwargs)
    finally:
        del os.environ["DISABLE_WORKER_INIT"]
    for one in made.values():
        one.fused_worker_dict = dict(made)  # verl's workers know each other by it
    return _Roles({role: waiting(one) for role, one in made.items()})


class _Roles:
    """The methods of several objects, each as role_method."""

    def __init__(self, roles):
        self._roles = roles

    def __getattr__(self, name):
        for role in sorted(self._roles, key=len, reverse=True):
            if name.startswith(role + "_"):
                return getattr(self._roles[role], name[len(role) + 1:])
        raise AttributeError(f"no role of {sorted(self._roles)} has a method {name!r}")
