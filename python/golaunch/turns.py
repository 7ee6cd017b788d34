"""Turns of groups that have the same GPUs: one has their memory at a time."""

import threading
import time

from .errors import DeadlineExceeded, GolaunchError, GPUMemoryError, GroupDeadError, WorkerFailureError

_FREED = 30.0  # seconds in which memory must be free once a group has offloaded


class Turns:
    """Whose turn it is on the GPUs of a cluster. Its state belongs to who holds the cluster's lock.

    A turn is a group's, and all its threads share it: who comes while it lasts comes in at once, so that a thread of a turn may wait for another.
    Groups that have no GPU in common do not wait for each other.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.running = {}  # by group, the turn that it has
        self.queue = []  # who waits, in order
        self.leaving = set()  # groups that are told to offload

    def enter(self, group, timeout):
        """Returns what leave wants: the thread that came in, for another may leave."""
        me = threading.get_ident()
        end = None if timeout is None else time.monotonic() + timeout
        mine = self._again(group, me)
        if group in mine:
            return me
        want = _Want(group, mine)
        with self.cluster._lock:
            held = None if group in self.running else self._stuck(want, mine, set())
            if held is not None:
                raise GolaunchError(
                    f"{group.name} cannot have its turn within that of {held.name}: {self._before(want)}, and there somebody waits for the end of "
                    f"{held.name}'s: leave one of the blocks before the other begins")
            self.queue.append(want)
        try:
            try:
                self.cluster._wait(lambda: self._claim(want), timeout, None)
            except TimeoutError:
                raise TimeoutError(f"{group.name} did not get its turn within {timeout} s: {self._why(want)}") from None
            finally:
                with self.cluster._lock:
                    self.queue.remove(want)
                    self._stir()
            if want.first:
                self._begin(group, end)
        except BaseException:
            if want.taken:
                self.leave(group, me)
            raise
        with self.cluster._lock:
            self.running[group].begun = True
            self._stir()
        return me

    def leave(self, group, me):
        with self.cluster._lock:
            turn = self.running[group]
            turn.threads[me] -= 1
            if not turn.threads[me]:
                del turn.threads[me]
            if not turn.threads:
                del self.running[group]
            self._stir()

    def _again(self, group, me):
        """The groups in whose turns this thread is, with one more of the group's if that is among them. In a turn that keeps the group from its own
        the thread would wait for itself."""
        with self.cluster._lock:
            mine = [g for g, turn in self.running.items() if me in turn.threads]
            if group in mine:
                self.running[group].threads[me] += 1
                return mine
            for other in mine:
                if _share(other, group):
                    raise GolaunchError(
                        f"{group.name} cannot have its turn within that of {other.name}, which has the same GPUs: leave that block before this one begins")
        return mine

    def _claim(self, want):
        """Takes the turn if it can be had. The lock is held, so that nobody else takes it."""
        if want.taken:
            return True
        group, me = want.group, threading.get_ident()
        if group._dead is not None:
            raise group._dead.again()
        turn = self.running.get(group)
        if turn is None and not self._before(want):
            self.running[group] = turn = _Turn()
            want.first = True
        if want.first or turn is not None and turn.begun:
            turn.threads[me] = turn.threads.get(me, 0) + 1
            want.taken = True
        return want.taken

    def _before(self, want):
        """Why others come first, if they do."""
        return next((why for _, _, why in self._ahead(want)), None)

    def _ahead(self, want):
        """The groups that come first, with what they want if they wait too, and why."""
        for other in self.running:
            if _share(other, want.group):
                yield other, None, f"it is {other.name}'s"
        for other in self.leaving:
            if other is want.group or _share(other, want.group):
                yield other, None, f"{other.name} is offloading"
        for earlier in self.queue:
            if earlier is want:
                return
            if any(_share(earlier.group, held) for held in want.mine):
                continue  # its turn cannot come before this thread has left
            if earlier.group is not want.group and _share(earlier.group, want.group):
                yield earlier.group, earlier, f"{earlier.group.name} waits for longer"

    def _stuck(self, want, mine, seen):
        """The one of some groups that has to leave its turn before a want can come true, because of what others wait for in their turns. The lock is held."""
        seen.add(want)
        for other, earlier, _ in self._ahead(want):
            if earlier is None and other in mine:
                return other
            for following in [w for w in self.queue if w is earlier or earlier is None and not w.taken and other in w.mine]:
                held = None if following in seen else self._stuck(following, mine, seen)
                if held is not None:
                    return held
        return None

    def _why(self, want):
        with self.cluster._lock:
            turn = self.running.get(want.group)
            return "its workers are told to load" if turn is not None else self._before(want) or "nothing is known to be before it"

    def _stir(self):
        """Has all who wait look again, also who waits for the cluster's sockets. The lock is held."""
        cluster = self.cluster
        cluster._lock.notify_all()
        if cluster._leading and not cluster._closed:
            cluster._nudge()

    # What a turn begins with

    def _begin(self, group, end):
        """Has the others free the GPUs, and the group take them."""
        with self.cluster._lock:
            others = [o for o in self.cluster.groups if o is not group and o._offloaded != _processes(o) and _share(o, group)]
            self.leaving.update(others)
        try:
            for other in others:
                _offload(other, end)
        finally:
            with self.cluster._lock:
                self.leaving.difference_update(others)
                self._stir()
        _freed(group, end)
        now = _processes(group)
        if group._loaded != now:
            group._loaded = group._offloaded = None
            _tell(group, group._onload, end)
            group._loaded = now


class _Want:
    def __init__(self, group, mine):
        self.group = group
        self.mine = mine  # the groups in whose turns the thread is that waits
        self.taken = False
        self.first = False  # it is to begin the turn


class _Turn:
    def __init__(self):
        self.threads = {}  # by thread, how often it is in the block
        self.begun = False


def _share(a, b):
    """Whether two groups have a GPU in common, or without GPUs a place on a node."""
    return a is b or _unplaced(a) or _unplaced(b) or not _places(a).isdisjoint(_places(b))


def _unplaced(group):
    """Whether it is not known where all its workers are: they start, and may be anywhere."""
    return group._dead is None and any(w.node is None for w in group.workers)


def _places(group):
    return {(w.node, w.gpu or w.local_rank) for w in group.workers if w.node is not None}


def _processes(group):
    """Which the workers are: after a restart they are others, which nobody has told anything."""
    return group.job, [w.attempt for w in group.workers]


def _left(end):
    return None if end is None else max(0.0, end - time.monotonic())


def _tell(group, method, end):
    """Calls a method of all workers. One that golaunch assumes by its name need not be there."""
    name, must = method
    if not must and not any(name in w._methods for w in group.workers):
        return
    left = _left(end)
    late = f"the time for a turn is over, and {group.name} has not answered {name}"
    if left == 0.0:
        raise TimeoutError(late)
    calls = group if left is None else group.within(left)
    try:
        # Who has ended by itself has no memory either.
        for called in [calls.run_single_worker_single_data(name, w.rank) for w in group.workers if w._end is None]:
            called.result()
    except DeadlineExceeded as error:
        raise TimeoutError(late) from error


def _offload(other, end):
    """A group that has ended has no memory any more. When workers die of it, those that come after them are told too."""
    other._loaded = None
    for last in (False, True):
        told = _processes(other)
        try:
            _tell(other, other._offload, end)
            break
        except GroupDeadError:
            break
        except WorkerFailureError as error:
            if last or error.cause == "exception":
                raise
    other._offloaded = told


def _freed(group, end):
    """Waits until no other process has memory of the group's GPUs, as far as NVML tells."""
    gpus = {}
    for w in group.workers:
        if w.gpu:
            gpus.setdefault(w.node, []).append(w.gpu)
    if not gpus:
        return
    within = _FREED if end is None else min(_FREED, _left(end))
    clean = group._offloaded == _processes(group)  # else it may have memory itself
    others = sum(o is not group and _share(o, group) for o in group.cluster.groups)
    found = group.cluster._helper.ask(
        "freed", job=group.job, gpus=gpus, keep=group._others_keep, whole=group._others_keep * max(1, others) if clean else 0, within=within)
    if found["missing"]:
        raise GolaunchError(f"whether the GPUs of {group.name} are free is not known: " + "; ".join(found["missing"][:8]))
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
