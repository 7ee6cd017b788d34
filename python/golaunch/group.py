"""Groups of workers."""

import contextlib
import json
import logging
import os
import secrets
import sys
import time

from . import future as futures
from . import wire
from .calls import Calls, View
from .cluster import main_program
from .errors import GolaunchError, GroupDeadError, WorkerFailureError
from .future import Future, RemoteGenerator
from .interrupts import Deferred
from .pickling import dumps
from .remote_worker import DONE, Worker
from .sharding import NamedSharding

_log = logging.getLogger("golaunch")
# How long golaunch may take to end a group before it is killed, in seconds.
_ANSWER, _KILLED = 10.0, 60.0
# A running call is cancelled again after this many seconds: the first signal may have arrived after
# Python had looked for signals, but before the method waited in the kernel. A second cancel does no
# harm.
_CANCEL_AGAIN = 0.1, 1.0, 10.0
# Calls of one worker without a result; further callers wait.
_OUTSTANDING = 1000
# Bytes in a worker's queue; further callers wait.
_QUEUED = 64 << 20
_UNITS = {"": 1, "B": 1, "K": 10 ** 3, "KB": 10 ** 3, "KIB": 1 << 10, "M": 10 ** 6, "MB": 10 ** 6, "MIB": 1 << 20,
          "G": 10 ** 9, "GB": 10 ** 9, "GIB": 1 << 30, "T": 10 ** 12, "TB": 10 ** 12, "TIB": 1 << 40}


def _shortened(name):
    """At most 56 characters, with both ends: the last characters distinguish names."""
    return name if len(name) <= 56 else name[:28] + name[-28:]


class WorkerGroup(Calls):
    """Workers on the bundles of a cluster. Each worker is a rank of a job, with the whole
    environment of a rank, and makes one object of a class.

    target is the class, or its name as "module:Class", which each node imports; args and init are
    its arguments. workers_per_node is a number, or a number for each node; the cluster's bundles
    when None. env has variables of the workers, and memory_limit bounds the memory that a worker
    may allocate, such as "8GB". sharding is a NamedSharding, or None for one axis, data_parallel;
    tied groups are its further axes.

    When a worker dies, the whole group restarts (restart="group"), or that worker alone
    (restart="worker"), at most max_restarts times; restart_on_failure=False never restarts. preload
    names modules that each node imports once before it forks its workers. The constructor returns
    when all workers are ready, or raises an error that says why a worker is not ready.
    """

    def __init__(self, cluster, target, *args, workers_per_node=None, name=None, env=None, memory_limit=None, restart_on_failure=True,
                 max_restarts=3, restart="group", restart_backoff=0.0, sharding=None, max_result_bytes="16GB", ready_timeout=None, use_gpus=None,
                 cpus=0, hang_timeout=0.0, grace=5.0, python=None, preload=None, preload_strict=False, show_output=True, offload_method=None,
                 onload_method=None, others_keep="4GB", **init):
        if restart not in ("group", "worker"):
            raise ValueError(f"restart={restart!r}: 'group' or 'worker'")
        self.cluster, self.name = cluster, name or "workers-" + secrets.token_hex(3)
        self._group, self._seconds = self, None
        self.per_node = _per_node(cluster, workers_per_node)
        total = sum(self.per_node)
        self.sharding = sharding or NamedSharding(list(range(total)), ["data_parallel"])
        if len(self.sharding) != total:
            raise ValueError(f"the sharding has {len(self.sharding)} workers, and the group {total}")
        self.target = target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"
        if ":" not in self.target or "<locals>" in self.target:
            raise ValueError(f"{self.target!r}: a class of a module, or \"module:Class\"")
        if self.target.startswith("__main__:"):
            sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # the name by which its workers import it
        self.restart, self._restarts = restart, max_restarts if restart_on_failure else 0
        self._max_result = _bytes(max_result_bytes)
        # For each method, whether the class must have it.
        self._offload, self._onload = (offload_method or "offload", bool(offload_method)), (onload_method or "onload", bool(onload_method))
        self._others_keep = _bytes(others_keep)
        self._loaded = self._offloaded = None  # the worker processes that obeyed the last order
        body, buffers = dumps((args, init))
        self._looking, self._pause = False, 0.0
        self._making = wire.encode(wire.MAKE, 0, json.dumps({
            "target": self.target, "main": main_program() if self.target.startswith("__main__:") else None, "path": [os.path.abspath(p) for p in sys.path],
            "memory": _bytes(memory_limit) if memory_limit else 0, "max_result_bytes": self._max_result, "version": sys.version_info[:2],
            "turns": [self._offload[0], self._onload[0]],
        }).encode(), body, buffers)
        gpu = cluster.use_gpus if use_gpus is None else use_gpus
        self._starting = {
            "within": cluster.name, "command": _command(python), "env": self._environment(env), "dir": os.getcwd(), "log_dir": cluster.log_dir or "",
            "per_node": self.per_node, "gpu": gpu, "per_gpu": cluster._per_gpu if gpu else 0, "cpus": cpus,
            "restart": "job" if restart == "group" else "rank", "max_restarts": self._restarts, "backoff": restart_backoff, "grace": grace,
            "hang_timeout": hang_timeout, "preload": preload or "", "preload_strict": preload_strict, "shown": show_output,
        }
        if not cluster._local:  # workers on other machines connect through their agents
            self._starting.update(socket=cluster.socket_path, key=cluster._key)

        self._jobs = 0
        try:
            self._start()
            self.ready(ready_timeout)
        except BaseException:
            self.shutdown(force=True)
            raise

    # Life cycle

    def _environment(self, env):
        own = {"GOLAUNCH_CONTROLLER": self.cluster.socket_path, "GOLAUNCH_CONTROLLER_KEY": self.cluster._key}
        return [f"{k}={v}" for k, v in dict(env or {}, **own).items()]

    def _start(self):
        """Begins a job for the workers: the first job, or the next job after its end."""
        cluster = self.cluster
        with cluster._lock:
            self.workers = [Worker(self, rank) for rank in range(sum(self.per_node))]
            self._failures, self._fatal, self._dead, self._closing, self._was_ready = {}, None, None, False, False
            self._reason = "it has been submitted"
            self.job = _shortened(f"{self.cluster.name}-{self.name}") + (f"-{self._jobs}" if self._jobs else "")
            self._jobs += 1
            cluster._by_job[self.job] = self
            if self not in cluster.groups:
                cluster.groups.append(self)
        try:
            cluster._helper.ask("start", id=self.job, **self._starting)
        except BaseException:
            with cluster._lock:
                self._dead = GroupDeadError(f"{self.name} was not started")
            raise

    def ready(self, timeout=None):
        """Waits until all workers are ready. timeout is in seconds."""
        try:
            self.cluster._wait(lambda: self._dead or self._fatal or all(w.state == "ready" for w in self.workers), timeout, None)
        except TimeoutError:
            late = [w.rank for w in self.workers if w.state != "ready"]
            raise TimeoutError(f"workers {late[:16]} of {self.name} were not ready within {timeout} s; golaunch says: {self._reason}") from None
        error = self._fatal or self._dead
        if error is not None:
            raise futures._raised(error)

    def shutdown(self, cleanup_method=None, timeout=30.0, force=False):
        """Ends the workers and waits for their end. If cleanup_method is named, each worker calls
        it first. With force, it kills the workers. It returns whether they ended in time.
        """
        cluster, fine = self.cluster, True
        if cluster._closed or self._dead is not None:
            self._leave()
            return self._dead is None
        if cleanup_method and not force:
            try:
                self.run_all_workers_single_data(cleanup_method).result(timeout)
            except (GolaunchError, TimeoutError):
                fine = False
        with cluster._lock:
            self._closing = True
            parts, _ = wire.encode(wire.BYE, 0)
            down = GroupDeadError(f"{self.name} was shut down")
            for w in self.workers:
                w.state = "ended"
                if w._link is not None and not force:
                    w._link.send(parts)
                w._fail(down)
                w._fail_held(down)
        try:
            if force:
                raise TimeoutError
            cluster._wait(lambda: self._dead, timeout, None)
        except TimeoutError:
            fine = fine and force
            try:
                for _ in range(2):  # the second request kills
                    cluster._helper.ask("stop", _limit=_ANSWER, job=self.job, why="its controller ends it")
                cluster._wait(lambda: self._dead, _KILLED, None)
            except (GolaunchError, ValueError, TimeoutError) as error:
                if self._dead is None:  # otherwise the group has just ended
                    fine = False
                    _log.warning("%s may run on until golaunch misses its controller: %s", self.name, error)
        self._leave()
        return fine

    def _leave(self):
        with self.cluster._lock:
            if self in self.cluster.groups:
                self.cluster.groups.remove(self)
            for w in self.workers:
                if w._link is not None:
                    w._link.close()
                    w._link = None
                w.state = "ended"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()

    def __repr__(self):
        return f"<WorkerGroup {self.name}: {len(self.workers)} workers of {self.target}>"

    # Events; the lock is held

    def _hello(self, link, facts):
        rank, attempt = facts.get("rank"), facts.get("attempt")
        if facts.get("job") != self.job or not isinstance(rank, int) or not 0 <= rank < len(self.workers) or not isinstance(attempt, int):
            return False
        if not isinstance(facts.get("node"), str) or not isinstance(facts.get("local_rank"), int) or not isinstance(facts.get("pid"), int):
            return False
        w = self.workers[rank]
        if attempt < w.attempt or (rank, attempt) in self._failures or self._dead:
            return False  # a late worker, which is about to be stopped
        limit = self._max_result + (1 << 20)
        if self._closing:
            if w._link is not None:
                w._link.close()
            w._link = link
            link.known(w, False, limit)
            link.send(*wire.encode(wire.BYE, 0))
        elif attempt == w.attempt:
            try:
                w._resumed(link, facts, limit)
            except wire.ProtocolError as error:
                link.send(wire.encode(wire.ERROR, 0, body=str(error).encode(), codec=wire.RAW)[0])
                return False
        else:
            if w._link is not None:
                w._lost(w._link)
            w._greeted(link, facts, limit)
            w._send(*self._making)
        return True

    def _made(self, w):
        w.state = "ready"
        self._was_ready = self._was_ready or all(o.state == "ready" for o in self.workers)
        w._take_held()

    def _unmade(self, w, error):
        w.state = "lost"
        self._failures[w.rank, w.attempt] = error
        if not self._was_ready:
            self._fatal = self._fatal or error

    def _look(self):
        """golaunch reports only failures, so a worker without a connection may have exited as if it
        were done. If the worker is alive, it is checked again later.
        """
        self._pause = 0.05
        if not self._looking:
            self._looking = True
            self._ask()

    def _ask(self):
        if self._dead is None and not self._closing and not self.cluster._helper.gone and any(w._untold() for w in self.workers):
            self.cluster._helper.send("usage", self._seen, job=self.job, within=1.0)
        else:
            self._looking = False

    def _seen(self, told):
        for used in (told.get("value") or {}).get("workers", ()):
            w = self.workers[used["rank"]]
            if used["ended"] == DONE and used["attempt"] == w.attempt and w._untold() and self._dead is None and not self._closing:
                w._done()
        self.cluster._after(self._pause, self._ask)
        self._pause = min(2 * self._pause, 5.0)

    def _told(self, told):
        self._reason = told["reason"] or self._reason
        failure = told.get("failure")
        if told["event"] == "over":
            result = told.get("result") or {}
            if not self._closing:
                error = self._explained(told, failure, GroupDeadError) if failure else GroupDeadError(f"{self.name} has ended: {self._reason}")
                error.args = (f"{self.name} has ended: {result.get('reason') or self._reason}",)
                self._end(error)
            else:
                self._end(GroupDeadError(f"{self.name} was shut down"))
        elif failure:
            self._failed(self._explained(told, failure, WorkerFailureError), failure)

    def _explained(self, told, failure, kind):
        rank = failure.get("rank")
        w = self.workers[rank] if rank is not None and rank < len(self.workers) else None
        exit_ = failure.get("exit") or {}
        made = self._failures.get((rank, failure.get("attempt")))
        error = kind(
            f"{self.name}: {told['reason']}", rank=rank, node=failure.get("node"), gpu=w.gpu if w else None, cause=told.get("cause") or "unknown",
            verdict=told.get("verdict"), last_words=failure.get("tail"), remote_traceback=failure.get("traceback"), exit_code=exit_.get("code"),
            signal=exit_.get("signal"))
        if made is not None:
            error.remote_traceback, error.__cause__ = made.remote_traceback, made.__cause__
        return error

    def _failed(self, error, failure):
        """Returns the workers that a failure ends: all workers of the group, all workers of a lost
        node, or one worker.
        """
        rank, attempt, node = failure.get("rank"), failure.get("attempt", -1), failure.get("node")
        whole = self.restart == "group"
        for w in self.workers:
            if not (whole or w.rank == rank or rank is None and w.node == node):
                continue
            if attempt >= 0 and w.attempt > attempt:
                w._explained(attempt, error)
                continue
            self._failures.setdefault((w.rank, attempt if attempt >= 0 else w.attempt), error)
            w.state = "lost"
            w._fail(error)

    def _ended(self, why):
        if self._dead is None:
            self._end(GroupDeadError(f"{self.name} has ended: {why}"))

    def _end(self, error):
        self._dead = self._dead or error
        for w in self.workers:
            w.state = "ended"
            w._fail(error)
            w._fail_held(error)
        self.cluster._by_job.pop(self.job, None)
        self.cluster._turns.over(self)

    # Calls

    def within(self, seconds):
        """The same calls with a deadline in seconds. A call without an answer by then is cancelled,
        and raises DeadlineExceeded.
        """
        if seconds <= 0:
            raise ValueError(f"a deadline of {seconds} s: more than 0")
        return View(self, seconds)

    @contextlib.contextmanager
    def active(self, timeout=None):
        """A turn on the GPUs, which other groups of the cluster may share; used as `with
        group.active(): ...`.

        Groups that had a turn on the same GPUs offload, golaunch checks by NVML that their memory
        is free, and this group onloads; then the block begins. The group keeps the memory until
        another group's turn. timeout, in seconds, bounds the wait for all these steps. Threads of
        one group share its turn, and a block within a block of the same group is part of that turn.
        """
        came = self.cluster._turns.enter(self, timeout)
        try:
            yield self
        finally:
            self.cluster._turns.leave(came)

    def _call(self, method, workers, calls, seconds=None, returned=None, single=False):
        if not isinstance(method, str) or len(method) > 256:
            raise TypeError(f"a method's name is a text: {method!r}")
        cluster, call = self.cluster, next(self.cluster._calls)
        deadline = None if seconds is None else time.monotonic() + seconds
        future = Future(cluster, call, method, workers, returned, deadline, single)
        future._group = self
        self._room(workers, deadline)
        with Deferred():  # even an exception of a signal's handler is not an error of the arguments
            self._send(future, calls)
        return future

    def _send(self, future, calls):
        cluster, call, name, frames, last = self.cluster, future._call, future.method.encode(), [], (None, None)
        for args in calls:
            if args is not last[0]:
                try:
                    pickled = dumps(args)
                except Exception as error:
                    error = TypeError(f"the arguments of {future.method} cannot be pickled: {type(error).__name__}: {error}")
                    raise error from None
                # even for a worker that is not ready: the buffers' objects may change
                last = args, wire.encode(wire.CALL, call, name, *pickled)
            frames.append(last[1])
        with cluster._lock:
            now = time.monotonic()
            for rank, frame in zip(future.called_workers, frames):
                w = self.workers[rank]
                if self._dead is not None or w._end is not None:
                    future._settle(rank, futures._ERROR, w._end or self._dead)
                elif w.state == "ready":
                    w._pending[call] = future
                    w._since[call] = future.method, now
                    w._send(*frame)
                else:
                    w._held.append((call, future, frame))
            cluster._stir()
            cluster._tidy()
            if future._deadline is not None and future._left:
                future._expiry = cluster._after(future._deadline - time.monotonic(), lambda: cluster._expire(future))

    def _room(self, workers, deadline):
        """Waits until the called workers can take one more call. So a caller that calls faster than
        the workers answer must wait.
        """
        called = [self.workers[rank] for rank in workers]

        def room():
            if self._dead is not None:
                return True
            for w in called:
                if len(w._pending) + len(w._held) >= _OUTSTANDING or w._link is not None and w._link.queued > _QUEUED:
                    return False
            return True

        if not room():
            self.cluster._wait(room, None if deadline is None else max(0, deadline - time.monotonic()), None)

    def _forget(self, rank, future):
        """No caller needs the result any more; the lock is held."""
        w, call = self.workers[rank], future._call
        w._held = [h for h in w._held if h[1] is not future]
        runs = call == min(w._pending, default=None)
        if w._pending.pop(call, None) is not None or w._streams.pop(call, None) is not None:
            w._since.pop(call, None)
            w._say(call, wire.CANCEL)
            for seconds in _CANCEL_AGAIN if runs else ():
                self.cluster._after(seconds, lambda attempt=w.attempt: w.attempt == attempt and w._say(call, wire.CANCEL))

    def _first_of(self, axes):
        if not axes:
            return list(range(len(self.workers)))
        for axis in axes:
            if axis not in self.sharding.names:
                raise ValueError(f"no axis {axis!r}: there are {self.sharding.names}")
        return [w for w in range(len(self.workers)) if all(self.sharding.get_worker_coords(w)[a] == 0 for a in axes)]

    def get_all_worker_results(self, future, return_generators_as_proxies=False):
        """Waits for the results of a call. Generators become lists of all their items, or stay
        generators.
        """
        results = future.result()
        if return_generators_as_proxies:
            return results
        if isinstance(results, RemoteGenerator):
            return list(results)
        return [list(r) if isinstance(r, RemoteGenerator) else r for r in results] if isinstance(results, list) else results

    # Facts

    @property
    def worker_metadata(self):
        """The place of each worker."""
        return [{"rank": w.rank, "node": w.node, "local_rank": w.local_rank, "gpu": w.gpu, "pid": w.pid, **self.sharding.get_worker_coords(w.rank)}
                for w in self.workers]

    @property
    def dp_size(self):
        return self.sharding.get_axis_size("data_parallel") if "data_parallel" in self.sharding.names else len(self.workers)

    def get_dp_leader_worker_idx(self, dp_index):
        """The first worker of a data parallel group."""
        return self.sharding.get_ranks_by_coord(data_parallel=dp_index)[0]

    def get_worker_status(self):
        """Each worker's state and place, and its current call with the seconds since it began."""
        self.cluster._turn()
        now = time.monotonic()
        with self.cluster._lock:
            status = []
            for w in self.workers:
                oldest = min(list(w._pending) + list(w._streams), default=None)
                status.append({
                    "rank": w.rank, "node": w.node, "gpu": w.gpu, "pid": w.pid, "attempt": w.attempt, "state": w.state,
                    "method": w._since[oldest][0] if oldest in w._since else None,
                    "busy_seconds": now - w._since[oldest][1] if oldest in w._since else 0.0, "calls": len(w._pending) + len(w._held),
                })
            return status

    def get_resource_usage(self, timeout=5.0):
        """The use of resources by each worker, as in `golaunch top`: cpus, memory_bytes, gpu_use
        and more, by rank.
        """
        usage = self.cluster._helper.ask("usage", job=self.job, within=timeout)
        return {u["rank"]: u for u in usage["workers"]}

    def detect_stuck_workers(self, after=60.0, timeout=5.0):
        """The workers that have been in one call for more than `after` seconds, with their activity
        and, if possible, their position in the program.
        """
        stuck = [s for s in self.get_worker_status() if s["busy_seconds"] >= after]
        if not stuck:
            return []
        usage = self.get_resource_usage(timeout)
        stacks = self.cluster._helper.ask("stacks", job=self.job, within=timeout)
        return [dict(s, does=usage.get(s["rank"], {}).get("does"), cpus=usage.get(s["rank"], {}).get("cpus"), stacks=stacks["text"]) for s in stuck]

    def restart_failed_workers(self, timeout=None):
        """Waits until restarted workers are ready. If the group has ended, it is started again.
        Returns the ranks that were started.
        """
        self.cluster._turn()
        with self.cluster._lock:
            dead = self._dead is not None
            if self.cluster._closed or self._closing:
                raise GroupDeadError(f"{self.name} was shut down")
            failed = [w.rank for w in self.workers if w.state != "ready"]
            left = any(w._end is not None for w in self.workers)
        if left and not dead:  # the other workers go on until then
            self.cluster._helper.ask("stop", job=self.job, why="it is started again, because a worker has left it")
            self.cluster._wait(lambda: self._dead, None, None)
            dead = True
        if dead:
            failed = list(range(len(self.workers)))
            if self not in self.cluster.groups:
                self.cluster.groups.append(self)
            self._start()
        if failed:
            self.ready(timeout)
        return failed


def _per_node(cluster, workers_per_node):
    bundles = cluster.bundles_per_node
    if workers_per_node is None:
        return list(bundles)
    per_node = [workers_per_node] * len(bundles) if isinstance(workers_per_node, int) else list(workers_per_node)
    if not per_node or len(per_node) > len(bundles) or any(not isinstance(n, int) or not 1 <= n <= b for n, b in zip(per_node, bundles)):
        raise ValueError(f"workers_per_node={workers_per_node!r}: the cluster has the bundles {bundles}")
    return per_node


def _bytes(size):
    """The number of bytes that a text such as "8GB" says."""
    if isinstance(size, int):
        return size
    text = size.strip().upper()
    number = text.rstrip("KMGTIB ")
    try:
        return int(float(number) * _UNITS[text[len(number):].strip()])
    except (ValueError, KeyError):
        raise ValueError(f"{size!r}: a number of bytes, such as 8GB or 512MiB") from None


def _command(python):
    """A worker's command line. A package that is not installed is found at its path here."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [python or sys.executable]
    if any(os.path.abspath(p) == home for p in sys.path if p.endswith(("site-packages", "dist-packages"))):
        return command + ["-m", "golaunch.worker"]
    return command + ["-c", f"import sys; sys.path.insert(0, {home!r}); from golaunch.worker import main; sys.exit(main())"]
