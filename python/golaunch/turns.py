"""Turns of groups on the same GPUs: one group at a time has their memory."""

import threading
import time

from .errors import DeadlineExceeded, GolaunchError, GPUMemoryError, GroupDeadError, WorkerFailureError

_FREED = 30.0  # seconds in which memory must be free once a group has offloaded


class Turns:
    """The turns on the GPUs of a cluster, as in launcher/group/turn_queue.go. The cluster's lock
    guards the state.

    All threads of a group share its turn. A thread that comes during the turn enters at once, so
    that one thread of a turn may wait for another. Groups without a common GPU do not wait for each
    other, and no group waits for a group that has ended.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.running = {}  # the current turns, by group
        self.queue = []  # waiting threads, in order

    def enter(self, group, timeout):
        """Returns the argument of leave: the turn and the thread that entered, since another thread
        may leave.
        """
        end = None if timeout is None else time.monotonic() + timeout
        want = _Want(group, threading.get_ident())
        try:
            if not self._again(want):
                self._wait(want, timeout, end)
                if want.first:
                    self._begin(group, end)
            with self.cluster._lock:
                want.turn.begun = True
                self._stir()
        except BaseException:
            if want.turn is not None:
                self.leave(want)
            raise
        return want

    def leave(self, want):
        with self.cluster._lock:
            turn = want.turn
            turn.threads[want.thread] -= 1
            if not turn.threads[want.thread]:
                del turn.threads[want.thread]
            if not turn.threads and self.running.get(want.group) is turn:
                del self.running[want.group]
            self._stir()

    def over(self, group):
        """A group has ended, and with it its turn, even if threads are in its blocks. The lock is
        held.
        """
        self.running.pop(group, None)
        self._stir()

    def _again(self, want):
        """Whether the thread is already in the group's turn: the block is then part of the turn."""
        with self.cluster._lock:
            turn = self.running.get(want.group)
            if turn is not None and want.thread in turn.threads:
                self._take(want, turn)
            return want.turn is not None

    def _wait(self, want, timeout, end):
        group = want.group
        try:
            _present(group, end)  # until then, it is unknown where the group's workers are
            with self.cluster._lock:
                want.mine = [g for g, turn in self.running.items() if want.thread in turn.threads]
                self.queue.append(want)
                self._stir()
            try:
                self.cluster._wait(lambda: self._claim(want), _left(end), None)
            finally:
                with self.cluster._lock:
                    self.queue.remove(want)
                    self._stir()
        except TimeoutError:
            raise TimeoutError(f"{group.name} did not get its turn within {timeout} s: {self._why(want)}") from None

    def _take(self, want, turn):
        want.turn = turn
        turn.threads[want.thread] = turn.threads.get(want.thread, 0) + 1

    def _claim(self, want):
        """Takes the turn if it is free, and raises if it never can be free. The lock is held."""
        group = want.group
        if want.turn is not None:
            return True
        if group._dead is not None:
            raise group._dead.again()
        turn = self.running.get(group)
        if turn is not None:
            if turn.begun:
                self._take(want, turn)
            return turn.begun
        mine = [g for g in want.mine if g in self.running]
        held = self._stuck(want, mine, self.queue[:self.queue.index(want)], set())
        if held is not None:
            if _overlap(held, group):
                raise GolaunchError(
                    f"{group.name} cannot have its turn within that of {held.name}, which has the same GPUs: leave that block before this one begins")
            raise GolaunchError(
                f"{group.name} cannot have its turn within that of {held.name}: {self._before(want)}, where another thread waits for the end of "
                f"{held.name}'s: leave one of the blocks before the other begins")
        if self._before(want):
            return False
        self.running[group] = turn = _Turn()
        want.first = True
        self._take(want, turn)
        return True

    def _before(self, want):
        """The reason why others come first, or None."""
        return next((why for _, _, why in self._ahead(want)), None)

    def _ahead(self, want):
        """The groups that come before this one, each with its waiting thread (None for a group that
        has its turn), and why.
        """
        for other in self.running:
            if other is not want.group and _share(other, want.group):
                yield other, None, f"it is {other.name}'s"
        for earlier in self.queue:
            if earlier is want:
                return
            if earlier.turn is not None or any(_share(earlier.group, held) for held in want.mine):
                continue  # the group has its turn, or must wait for this thread
            if earlier.group is not want.group and _share(earlier.group, want.group):
                yield earlier.group, earlier, f"{earlier.group.name} waits for longer"

    def _stuck(self, want, mine, before, seen):
        """Returns the group in mine whose turn must end before want can have its own turn, directly
        or because others wait; None if there is none. Groups whose workers may be on any GPU do not
        count. Of the waiters, only the earlier ones, in before, count: so of waiters that wait for
        each other in a circle, the last gets the error. The lock is held.
        """
        seen.add(want)
        for other, earlier, _ in self._ahead(want) if mine else ():
            if not _overlap(other, want.group):
                continue
            if earlier is None and other in mine:
                return other
            for following in [w for w in before if w is earlier or earlier is None and w.turn is None and other in w.mine]:
                held = None if following in seen else self._stuck(following, mine, before, seen)
                if held is not None:
                    return held
        return None

    def _why(self, want):
        with self.cluster._lock:
            late = [w.rank for w in want.group.workers if w.state != "ready" and w._end is None]
            if late:
                return f"its workers {late[:16]} are not there"
            return "its workers are loading" if want.group in self.running else self._before(want) or "nothing is known to be before it"

    def _stir(self):
        """Wakes all waiters, also those for the cluster's sockets. The lock is held."""
        cluster = self.cluster
        cluster._lock.notify_all()
        if cluster._leading and not cluster._closed:
            cluster._nudge()

    # The begin of a turn

    def _begin(self, group, end):
        """Makes the other groups free the GPUs, and this group take them."""
        with self.cluster._lock:
            others = [o for o in self.cluster.groups if o is not group and o._offloaded != _processes(o) and _share(o, group)]
        for other in others:
            _offload(other, end)
        _freed(group, end)
        if group._loaded != _processes(group):
            group._loaded = group._offloaded = None
            group._loaded = _tell(group, group._onload, end)


class _Want:
    def __init__(self, group, thread):
        self.group, self.thread = group, thread
        self.mine = []  # the groups in whose turns the waiting thread is
        self.turn = None  # the turn, once the thread has one
        self.first = False  # this thread begins the turn


class _Turn:
    def __init__(self):
        self.threads = {}  # the number of blocks that each thread is in
        self.begun = False


def _share(a, b):
    """Whether two groups may share a GPU: starting workers may get any."""
    return a is b or _unplaced(a) or _unplaced(b) or _overlap(a, b)


def _overlap(a, b):
    """Whether two groups are known to share a GPU, or without GPUs a place on a node."""
    return not _places(a).isdisjoint(_places(b))


def _unplaced(group):
    """Whether the place of a worker is unknown, since the worker is starting."""
    return group._dead is None and any(w._link is None and w._end is None for w in group.workers)


def _places(group):
    """The places of the group's workers now or, if they restart, before the restart."""
    return {(w.node, w.gpu or w.local_rank) for w in group.workers if w.node is not None and w._end is None} if group._dead is None else set()


def _present(group, end):
    """Waits for all workers that have not exited."""
    group.cluster._wait(lambda: group._dead or all(w.state == "ready" or w._end is not None for w in group.workers), _left(end), None)
    if group._dead is not None:
        raise group._dead.again()


def _processes(group):
    """Identifies the worker processes: after a restart there are new processes, which have no
    orders yet.
    """
    return group.job, [w.attempt for w in group.workers]


def _left(end):
    return None if end is None else max(0.0, end - time.monotonic())


def _tell(group, method, end):
    """Calls a method of all workers when they are ready, and returns their identity. A method that
    golaunch assumes by its name may be missing.
    """
    name, must = method
    late = f"the time for a turn is over, and {group.name} has not answered {name}"
    try:
        _present(group, end)
    except TimeoutError:
        raise TimeoutError(late) from None
    told = _processes(group)
    if not must and not any(name in w._methods for w in group.workers):
        return told
    left = _left(end)
    if left == 0.0:
        raise TimeoutError(late)
    calls = group if left is None else group.within(left)
    try:
        # An exited worker has no memory.
        for called in [calls.run_single_worker_single_data(name, w.rank) for w in group.workers if w._end is None]:
            called.result()
    except DeadlineExceeded as error:
        raise TimeoutError(late) from error
    return told


def _offload(other, end):
    """Makes a group offload. A group that has ended has no memory. If workers die meanwhile, their
    successors are asked once.
    """
    other._loaded = other._offloaded = None
    for last in (False, True):
        try:
            other._offloaded = _tell(other, other._offload, end)
            break
        except GroupDeadError:
            break
        except WorkerFailureError as error:
            if last or error.cause == "exception":
                raise


def _freed(group, end):
    """Waits until, according to NVML, no other process has memory of the group's GPUs."""
    gpus = {}
    for w in group.workers:
        if w.gpu and w.gpu not in gpus.setdefault(w.node, []):
            gpus[w.node].append(w.gpu)
    if not gpus:
        return
    within = _FREED if end is None else min(_FREED, _left(end))
    clean = group._offloaded == _processes(group)  # otherwise the group itself may have memory
    others = sum(o is not group and _share(o, group) for o in group.cluster.groups)
    found = group.cluster._helper.ask(
        "freed", job=group.job, gpus=gpus, keep=group._others_keep, whole=group._others_keep * max(1, others) if clean else 0, within=within)
    if found["missing"]:
        raise GolaunchError(f"cannot tell whether the GPUs of {group.name} are free: " + "; ".join(found["missing"][:8]))
    if found["held"]:
        raise _still(group, found["held"], within)


def _still(group, held, within):
    names = {g.job: g.name for g in group.cluster.groups}
    by = []
    for h in held:
        if h["job"]:
            h["by"] = f"rank {h['rank']} of {names.get(h['job'], 'job ' + h['job'])} (pid {h['pid']})"
        else:
            h["by"] = f"pid {h['pid']}, which is of no group" if h["pid"] else "processes that the driver does not name"
        by.append(f"{h['bytes'] / 2 ** 30:.1f} GiB of {h['gpu_uuid']} on {h['node']} by {h['by']}")
    more = f"; and {len(by) - 8} more" if len(by) > 8 else ""
    return GPUMemoryError(
        f"the GPUs of {group.name} are not free {within:.0f} s after others were told to offload. Still held: {'; '.join(by[:8])}{more}. Let these free it, or end "
        f"them; WorkerGroup(others_keep=...) is what each may keep, {group._others_keep / 2 ** 30:.1f} GiB now", held)
