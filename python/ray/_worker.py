"""A process of a session that runs tasks, or is an actor.

Its main thread runs tasks, one after another; an actor may have threads, or a loop, instead.
"""

import _thread
import base64
import contextvars
import importlib
import inspect
import io
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque

from . import _history, _objects, _session, _wire
from . import exceptions as errors
from ._core import Core, _result_id, interruptible

_LONG = 0.01  # seconds after which tasks that wait behind a running task are given back
_BATCH = 16  # results that are sent at once
_HOLD = 0.002  # seconds
_AGAIN = 0.005  # seconds until a cancellation tries again to interrupt the main thread
_EPOCH = time.time() - time.monotonic()
current = contextvars.ContextVar("task", default=None)


class Running:
    """A task that runs."""

    __slots__ = ("id", "name", "link", "began", "cancelled", "interrupted", "future", "function", "group", "failed")

    def __init__(self, task_id, name, link, function, group=None):
        self.id, self.name, self.link, self.function, self.group = task_id, name, link, function, group
        self.began, self.cancelled, self.interrupted, self.future, self.failed = time.monotonic(), False, False, None, None


class ActorExit(BaseException):
    """Ends the actor."""


def executed():
    """The worker's main function in another interpreter."""
    config, server, sock, path = json.loads(os.environ.pop("GOLAUNCH_PROCESS"))
    sys.path += [p for p in path if p not in sys.path]
    for key in ("address", "host", "head"):
        config[key] = tuple(config[key])
    for fd in (server, sock):
        os.set_inheritable(fd, False)
    server = socket.socket(fileno=server)
    server.setblocking(False)
    main(config, server, socket.socket(fileno=sock))


def main(config, server, sock):
    job = config["job"]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not config["env"].get("working_dir") and job["dir"] and os.path.isdir(job["dir"]):
        os.chdir(job["dir"])
    for path in job["path"]:
        if path not in sys.path:
            sys.path.append(path)
    core = Core(config["session"], tuple(config["address"]), config["head"], config["host"], config["certificate"], job, config["cluster"])
    executor = core.executor = Executor(core, config)
    core.host = _wire.Connection(core.loop, sock, core._message, core._lost)
    core.host.peer = config["host"][0]
    core.links[config["host"][0]] = core.host
    if config["head"][0] == config["host"][0]:
        core._head = core.host
    core.listen(server)
    _session.inside(core, config)
    if job["log"]:
        sys.stdout, sys.stderr = Lines(core, "out", executor), Lines(core, "err", executor)
    core.start()
    if config["env"].get("package"):
        from . import _package

        try:
            _package.enter(core, config["env"]["package"], config["dirs"])
        except Exception as error:
            core.host.send("unfit", f"the working directory cannot be had on node {core.node_id} ({core.address[2]}): {type(error).__name__}: {error}")
            _shut(core)
    if config["env"].get("hook"):
        try:
            _hook(config["env"]["hook"])()
        except Exception as error:
            traceback.print_exc()
            core.host.send("unfit", f"worker_process_setup_hook on node {core.node_id} ({core.address[2]}): {type(error).__name__}: {error}")
            _shut(core)
    if config["env"]["key"]:
        core.host.send("ready")
    executor.serve()


def _hook(named):
    """Calls the function that each process calls first, given as a function or by its name."""
    kind, text = named
    if kind == "pickle":
        return _objects.loads(base64.b64decode(text))
    module, _, name = text.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Executor:
    def __init__(self, core, config):
        self.core, self.config = core, config
        self.queue, self.tokens = deque(), queue.SimpleQueue()
        self.functions = {}
        self.running = {}
        self.main = None  # the task that the main thread runs
        self.watching = False
        self.held, self.arming = [], False
        self.hold_lock = threading.Lock()
        self.gpus, self.visible = [], os.environ.get("CUDA_VISIBLE_DEVICES")
        self.actor = self.actor_id = self.spec = None
        self.actor_repr = ""
        self.restarts = 0
        self.loop = self.threads = self.limit = None
        self.leaving, self.group = False, None
        core.on_wait = self.waits
        core.said_create = lambda link, fds, *args: self._push(link, ("create", *args))
        core.said_leave = lambda link, fds: self._push(link, ("leave",))
        core.on_retire = self._retire
        self.early = deque(maxlen=1024)  # cancelled tasks; a task checks this on its way from the queue to the thread that runs it

    # In the thread that receives

    def arrived(self, link, message):
        if message[0] == "M" and self.loop is not None:
            self.loop.call_soon_threadsafe(self._begin, link, message)
        elif message[0] == "M" and self.threads is not None:
            self.threads.submit(self._call, link, message)
        else:
            if message[0] == "T" and message[3] is not None:  # a function is sent once, so it is kept even if this task does not run here
                self.functions[message[2]] = message[3]
            self._push(link, message)
            if not self.watching and message[0] == "T":
                self.watching = True
                self.core.loop.later(_LONG, self._watch)

    def _push(self, link, message):
        self.queue.append((link, message))
        self.tokens.put(None)

    def _watch(self):
        """Gives back the tasks that wait behind a task that takes long."""
        self.watching = False
        main = self.main
        if self.queue:
            if main is not None and time.monotonic() - main.began >= _LONG:
                self._give_back()
            else:
                self.watching = True
                self.core.loop.later(_LONG, self._watch)

    def _give_back(self):
        back = {}
        while True:
            try:
                link, message = self.queue.pop()
            except IndexError:
                break
            if message[0] != "T":
                self.queue.append((link, message))
                break
            back.setdefault(link, []).insert(0, message[1])
        for link, ids in back.items():
            link.send("unstarted", ids)

    def _retire(self, link, then):
        """The node has enough processes: this process ends, unless others depend on it."""
        core = self.core
        with core.lock:
            needed = core.objects or core.tasks or core.creates or core.held_results or self.running or self.queue
        if needed:
            then()
        else:
            core.apart(_shut, core)

    def cancel(self, link, task_id, force):
        self.early.append(task_id)
        for item in list(self.queue):
            if len(item[1]) > 1 and item[1][1] == task_id:
                try:
                    self.queue.remove(item)
                except ValueError:
                    break
                self._fail(link, task_id, errors.TaskCancelledError(f"TaskID({task_id.hex()})"))
                return
        running = self.running.get(task_id)
        if running is None:
            return
        running.cancelled = True
        if force:
            os._exit(1)
        if running.future is not None:
            self.loop.call_soon_threadsafe(running.future.cancel)
        elif running is self.main:
            self._cancel_main(running)

    def _cancel_main(self, running):
        """Interrupts the main thread. It tries again while the main thread is in a step that must
        not be interrupted.
        """
        if running is self.main and not running.interrupted:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            self.core.loop.later(_AGAIN, lambda: self._cancel_main(running))

    def _check(self, running):
        """Ends a task that was cancelled just before it began."""
        if self.early and running.id in self.early:
            running.cancelled = running.interrupted = True
            raise KeyboardInterrupt

    def runs(self):
        """The running tasks, and when each began."""
        return [(task_id, running.began + _EPOCH) for task_id, running in list(self.running.items())]

    def lost(self, link):
        for task_id, running in list(self.running.items()):
            if running.link is link and self.actor_id is None:
                os._exit(1)  # the caller has ended, so the result is not needed

    # In the main thread

    def serve(self):
        signal.signal(signal.SIGINT, self._interrupt)
        tokens, tasks = self.tokens, self.queue
        while True:
            tokens.get()
            try:
                link, message = tasks.popleft()
            except IndexError:
                continue
            try:
                if message[0] == "T":
                    self._task(link, message)
                elif message[0] == "M":
                    self._call(link, message)
                elif message[0] == "create":
                    self._create(*message[1:])
                else:
                    self._leave()
            except KeyboardInterrupt:  # a cancellation that came after the last step of its task
                self._fail(link, message[1], errors.TaskCancelledError(f"TaskID({message[1].hex()})"))

    def _interrupt(self, _, frame):
        self._end_cancelled(frame)

    def _end_cancelled(self, frame):
        """Ends a cancelled task at the present step of the main thread or, if this step must not be
        interrupted, at the next call.
        """
        running = self.main
        if threading.current_thread() is not threading.main_thread():
            return
        self.core.interrupt = None
        if running is not None and running.cancelled and not running.interrupted:
            if interruptible(frame, Executor.serve):
                running.interrupted = True
                raise KeyboardInterrupt
            self.core.interrupt = self._end_cancelled

    def waits(self, waits):
        """A task waits for other tasks. They may need its CPUs, and the tasks behind it need
        another process.
        """
        if self.main is None or self.actor_id is not None or threading.current_thread() is not threading.main_thread():
            return  # tasks that have arrived run here: while the process still gets its working directory, none of them waits
        if waits:
            self.flush()
            self._give_back()
        self.core.head.send("waits", self.core.proc, waits)

    def _task(self, link, message):
        _, task_id, fid, _, body, deps, count, name, gpus, owner, stream, group = message
        running = self.main = self.running[task_id] = Running(task_id, name, link, name, group)
        token = current.set(running)
        try:
            try:
                self._check(running)
                self.show(gpus)
                function = self.functions[fid]
                if type(function) is tuple:
                    function = self.functions[fid] = _objects.loads(*function)
                args, kwargs = self.load(body, deps)
                if stream:
                    self._stream(running, function(*args, **kwargs))
                    value = None
                    outs = []
                else:
                    value = function(*args, **kwargs)
                    del args, kwargs
                    outs, nested = self.pack(task_id, value, count, "Task")
                    if nested:
                        self.core.held_results[link, task_id] = nested
            except BaseException as error:
                self.main = None
                outs = [(self.failure(running, error), ())]
            self.main = None
            seconds = time.monotonic() - running.began
            self.reply(link, task_id, outs, seconds, running)
        finally:
            self.main = None
            self.running.pop(task_id, None)
            current.reset(token)

    def load(self, body, deps):
        """The arguments of a call. Top-level references have become values."""
        if body is None:
            return (), {}
        kind, text, buffers, slots = body
        if kind == "s":  # (kind, object, descriptor, slots)
            text, buffers = self.core.fetch(text, self.core.address, buffers)
        else:
            buffers = [memoryview(b) for b in buffers]
        args, kwargs = _objects.loads(text, buffers)
        if deps:
            args = list(args)
            values = [self.core.load(_Dep(oid, owner), desc) for oid, owner, desc in deps]
            for where, i in slots:
                if type(where) is int:
                    args[where] = values[i]
                else:
                    kwargs[where] = values[i]
        return args, kwargs

    def pack(self, task_id, value, count, what, first=0):
        """The results as descriptors, with the references in them."""
        if count == 1:
            values = (value,)
        elif count == 0:
            values = ()
        else:
            if not hasattr(value, "__iter__"):
                raise TypeError(f"object of type {type(value).__name__!r} has no len()")
            values = list(value)
            if len(values) != count:
                raise ValueError(f"{what} returned {len(values)} objects, but num_returns={count}.")
        outs, kept = [], []
        for i, one in enumerate(values):
            body, buffers, nested = _objects.dumps(one)
            tokens = ()
            if nested:
                tokens = [n._token() if hasattr(n, "_token") else ("ref", n._id, n._owner) for n in nested]
                kept.extend(nested)
            outs.append((self.core.store(_result_id(task_id, first + i), body, buffers), tokens))
        return outs, kept

    def _stream(self, running, items):
        for index, item in enumerate(items):
            self._item(running, index, item)

    def _item(self, running, index, item):
        outs, nested = self.pack(running.id, item, 1, "", index)
        if nested:
            self.core.held_results[running.link, (running.id, index)] = nested
        running.link.send("I", running.id, index, outs[0])

    def reply(self, link, task_id, outs, seconds, running):
        frame = link.frame("R", task_id, outs, seconds, running.began + _EPOCH, running.failed)
        with self.hold_lock:
            if self.queue and seconds < 0.0002 and len(self.held) < _BATCH and len(frame) < 4096:
                self.held.append((link, frame))
                if self.arming:
                    return
                self.arming = True
            else:
                held, self.held = self.held, []
                if not held:
                    link.send_bytes(frame)
                    return
                held.append((link, frame))
                self._send(held)
                return
        self.core.loop.later(_HOLD, self._flush_late)

    def _flush_late(self):
        with self.hold_lock:
            self.arming = False
            held, self.held = self.held, []
            self._send(held)

    def flush(self):
        with self.hold_lock:
            held, self.held = self.held, []
            self._send(held)

    @staticmethod
    def _send(held):
        by = {}
        for link, frame in held:
            by.setdefault(link, []).append(frame)
        for link, frames in by.items():
            link.send_bytes(b"".join(frames))

    def _fail(self, link, task_id, error):
        link.send("R", task_id, [(("e", errors.dump(error)), ())], 1.0, None, _history.failed(error))

    def failure(self, running, error, method=None):
        """The descriptor of an exception."""
        if running.cancelled or isinstance(error, KeyboardInterrupt) or _is_cancellation(error):
            cancelled = errors.TaskCancelledError(f"TaskID({running.id.hex()})")
            if running.future is not None:
                running.failed = _history.failed(cancelled)
                return "e", errors.dump(cancelled)
            error = cancelled.with_traceback(error.__traceback__)
        raised = self.task_error(running.function, error)
        running.failed = _history.failed(error if running.cancelled else raised)
        return "e", errors.dump(raised)

    def task_error(self, name, error):
        cause = error.cause if isinstance(error, errors.RayTaskError) else error
        lines = traceback.format_exception(type(error), error, _beyond(error.__traceback__))
        if lines and lines[0].startswith("Traceback"):
            lines = lines[1:]
        return errors.RayTaskError(
            name, "".join(lines).rstrip("\n"), cause, proctitle=f"ray::{name}()", pid=os.getpid(), ip=self.core.address[2],
            actor_repr=self.actor_repr or None, actor_id=self.actor_id.hex() if self.actor_id else None)

    def show(self, gpus):
        """Sets the variables by which the process sees its GPUs."""
        if gpus == self.gpus:
            return
        self.gpus = gpus
        if os.environ.get("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES") not in (None, "", "0", "false"):
            return
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(g[0]) for g in gpus)
        elif self.visible is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.visible

    # Actors

    def _create(self, actor_id, spec, body, gpus, restarts):
        self.spec, self.restarts = spec, restarts
        strategy = spec["strategy"]
        self.group = strategy if strategy[0] == "group" else None
        running = self.main = Running(b"\xff" * 8 + actor_id, spec["class"] + ".__init__", None, f"{spec['class']}.__init__")
        token = current.set(running)
        try:
            self.show(gpus)
            self.actor_id = actor_id
            cls = _objects.loads(*spec["blob"])
            args, kwargs = self.load(*body)
            is_async = any(inspect.iscoroutinefunction(m) or inspect.isasyncgenfunction(m) for _, m in inspect.getmembers(cls, inspect.isfunction))
            most = spec["max_concurrency"]
            if is_async:
                self._begin_loop(most or 1000)
                made = _thread.allocate_lock()
                made.acquire()
                got, kept = [], []  # kept here, since the loop itself has only a weak reference

                async def make():
                    current.set(running)
                    try:
                        self.actor = cls.__new__(cls)
                        begun = self.actor.__init__(*args, **kwargs)
                        if inspect.isawaitable(begun):
                            await begun
                    except BaseException as error:
                        got.append(error)
                    finally:
                        made.release()

                self._loop.call_soon_threadsafe(lambda: kept.append(self._loop.create_task(make())))
                made.acquire()
                if got:
                    raise got[0]
                self.loop = self._loop
            else:
                self.actor = cls.__new__(cls)
                self.actor.__init__(*args, **kwargs)
                if (most or 1) > 1:
                    from concurrent.futures import ThreadPoolExecutor

                    self.threads = ThreadPoolExecutor(most)
            self.actor_repr = repr(self.actor) if type(self.actor).__repr__ is not object.__repr__ else f"<{cls.__module__}.{cls.__qualname__} object at {hex(id(self.actor))}>"
            while self.queue and (self.loop or self.threads):  # the calls that came before the actor was known
                link, message = self.queue.popleft()
                if message[0] != "M":
                    self.queue.appendleft((link, message))
                    break
                self.arrived(link, message)
            self.core.host.send("created", actor_id, None)
        except ActorExit:
            self._exit("exit_actor() was called in the actor's constructor.")
        except BaseException as error:
            failed = self.task_error(f"{spec['class']}.__init__", error)
            self.core.host.send("created", actor_id, ("e", errors.dump(errors.ActorDiedError(failed, actor_id=actor_id.hex(), class_name=spec["class"]))))
        finally:
            self.main = None
            current.reset(token)

    def _method(self, name):
        if name == "__ray_call__":
            return lambda function, *args, **kwargs: function(self.actor, *args, **kwargs)
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_terminate__":
            return self._terminate
        return getattr(self.actor, name)

    def _terminate(self):
        raise ActorExit

    def _call(self, link, message):
        """Calls a method in this thread."""
        _, task_id, name, body, deps, count, owner, stream, shown = message
        running = self.running[task_id] = Running(task_id, shown, link, f"{self.spec['class']}.{name}")
        mine = threading.current_thread() is threading.main_thread()
        if mine:
            self.main = running
        token = current.set(running)
        try:
            try:
                self._check(running)
                args, kwargs = self.load(body, deps)
                value = self._method(name)(*args, **kwargs)
                del args, kwargs
                if stream:
                    self._stream(running, value)
                    outs = []
                else:
                    outs, nested = self.pack(task_id, value, count, "Task")
                    if nested:
                        self.core.held_results[link, task_id] = nested
            except ActorExit:
                self._exit("The actor is dead because exit_actor() was called.")
            except SystemExit as error:
                self._exit(f"The actor is dead because its process called sys.exit({error.code!r}).")
            except BaseException as error:
                if mine:
                    self.main = None
                outs = [(self.failure(running, error), ())]
            if mine:
                self.main = None
            link.send("R", task_id, outs, time.monotonic() - running.began, running.began + _EPOCH, running.failed)  # answered at once, since the next call may end the process
        finally:
            if mine:
                self.main = None
            self.running.pop(task_id, None)
            current.reset(token)

    def _exit(self, why):
        self.flush()
        self.core.host.send("exiting", self.actor_id, why)
        _shut(self.core)

    def _leave(self):
        self.leaving = True
        if self.loop is not None:
            import asyncio

            asyncio.run_coroutine_threadsafe(self._leave_soon(), self.loop)
            return
        if self.threads is not None:
            self.threads.shutdown(wait=True)
        self.flush()
        _shut(self.core)

    async def _leave_soon(self):
        import asyncio

        while self.running:
            await asyncio.gather(*[r.future for r in list(self.running.values()) if r.future], return_exceptions=True)
        self.flush()
        _shut(self.core)

    # Actors with coroutines

    def _begin_loop(self, most):
        import asyncio  # other processes do not need it

        loop = self._loop = asyncio.new_event_loop()

        def run():
            asyncio.set_event_loop(loop)
            self.limit = asyncio.Semaphore(most)
            loop.run_forever()

        threading.Thread(target=run, name="AsyncIO Thread: default", daemon=True).start()

    def _begin(self, link, message):
        """Begins a call in the actor's loop."""
        _, task_id, name, body, deps, count, owner, stream, shown = message
        running = self.running[task_id] = Running(task_id, shown, link, f"{self.spec['class']}.{name}")
        running.future = self.loop.create_task(self._coroutine(running, name, body, deps, count, stream))

    async def _coroutine(self, running, name, body, deps, count, stream):
        link, task_id = running.link, running.id
        current.set(running)
        try:
            async with self.limit:
                running.began = time.monotonic()
                self._check(running)
                args, kwargs = self.load(body, deps)
                value = self._method(name)(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
                if stream:
                    await self._stream_async(running, value)
                    outs = []
                else:
                    outs, nested = self.pack(task_id, value, count, "Task")
                    if nested:
                        self.core.held_results[link, task_id] = nested
        except ActorExit:
            self._exit("The actor is dead because exit_actor() was called.")
        except BaseException as error:
            outs = [(self.failure(running, error), ())]
        self.running.pop(task_id, None)
        link.send("R", task_id, outs, time.monotonic() - running.began, running.began + _EPOCH, running.failed)

    async def _stream_async(self, running, items):
        if not hasattr(items, "__aiter__"):
            self._stream(running, items)
            return
        index = 0
        async for item in items:
            self._item(running, index, item)
            index += 1


def _is_cancellation(error):
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


class _Dep:
    """An argument's object, which the caller keeps alive."""

    def __init__(self, oid, owner):
        self._id, self._owner = oid, owner


def _beyond(tb):
    """A traceback without golaunch's frames at its beginning."""
    here = os.path.dirname(__file__)
    while tb is not None and os.path.dirname(tb.tb_frame.f_code.co_filename) == here and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _shut(core):
    """Ends the process once the kernel has all data that it has sent."""
    done = threading.Event()
    core.notes.tell()

    def check():
        links = [x for x in [core.host, *core.links.values()] if x is not None and not x.closed]
        if any(x._out for x in links):
            core.loop.later(0.005, check)
        else:
            done.set()

    for out in (sys.stdout, sys.stderr):
        try:
            out.flush()
        except Exception:
            pass
    core.loop.soon(check)
    if threading.current_thread() is not core.thread:
        done.wait(5)
    os._exit(0)


class Lines(io.TextIOBase):
    """Standard output of a worker: its driver prints each line."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, core, out, executor):
        self.core, self.out, self.executor = core, out, executor
        self.text, self.link, self.beneath = "", None, sys.__stdout__ if out == "out" else sys.__stderr__
        self.lock = threading.Lock()

    def writable(self):
        return True

    def fileno(self):
        return self.beneath.fileno()

    def write(self, text):
        with self.lock:
            self.text += text
            if "\n" not in self.text:
                return len(text)
            lines, _, self.text = self.text.rpartition("\n")
        self._tell(lines)
        return len(text)

    def flush(self):
        with self.lock:
            text, self.text = self.text, ""
        if text:
            self._tell(text)

    def _tell(self, lines):
        running = current.get()
        name = self.executor.spec["class"] if self.executor.spec else running.name if running else "worker"
        at = "" if self.core.node_id == self.core.job["driver"][1] else f", ip={self.core.address[2]}"
        text = "".join(f"\x1b[36m({name} pid={os.getpid()}{at})\x1b[0m {line}\n" for line in lines.split("\n"))
        if self.link is None and threading.current_thread() is not self.core.thread:
            self.link = self.core._owner(tuple(self.core.job["driver"]))
        if self.link is None or not self.link.send("log", self.out, text):
            self.beneath.write(text)
            self.beneath.flush()
