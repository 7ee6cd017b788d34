"""What tasks there were and are.

The caller of a task notes it when it is over, and tells the head once a second. The head asks callers
for tasks that are not over, and the processes that run tasks for those that run.
"""

import hashlib
import os
import time
from collections import deque
from itertools import islice

from . import exceptions as errors

MOST = max(0, int(os.environ.get("RAY_task_events_max_num_task_in_gcs") or 10_000))  # finished tasks that are kept; the last ones stay
_EVERY = 1.0  # seconds until the head is told
_ANSWER = 2.0  # seconds in which processes must say which tasks they run
_TEXT = 1000  # characters of an error that are kept
_KINDS = (
    (errors.RayTaskError, "TASK_EXECUTION_EXCEPTION"), (errors.TaskCancelledError, "TASK_CANCELLED"), (errors.WorkerCrashedError, "WORKER_DIED"),
    (errors.ActorUnavailableError, "ACTOR_UNAVAILABLE"), (errors.RayActorError, "ACTOR_DIED"), (errors.OwnerDiedError, "OWNER_DIED"),
    (errors.ObjectReconstructionFailedError, "OBJECT_UNRECONSTRUCTABLE"), (errors.ObjectLostError, "OBJECT_LOST"), (errors.OutOfMemoryError, "OUT_OF_MEMORY"),
    (errors.TaskPlacementGroupRemoved, "TASK_PLACEMENT_GROUP_REMOVED"), (errors.TaskUnschedulableError, "TASK_UNSCHEDULABLE_ERROR"),
)


def failed(error):
    """The kind and the text of an exception, as they are noted."""
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), "TASK_EXECUTION_EXCEPTION"), str(error)[:_TEXT]


class Notes:
    """The notes of one process about its tasks."""

    def __init__(self, core):
        self._core = core
        self._over, self._telling = deque(maxlen=MOST), False

    def over(self, task, error=None, began=None, seconds=0.0):
        """An attempt of a task is over; the lock is held."""
        state = "FINISHED" if error is None else "FAILED"
        self._over.append(self._row(task, state, began, (began + seconds) if began else time.time(), error))
        task.attempt += 1
        if not self._telling:
            self._telling = True
            self._core.loop.later(_EVERY, self.tell)

    @staticmethod
    def _row(task, state, began=None, ended=None, error=None):
        actor, pool, lease = task.actor, task.pool, task.lease
        at = lease.address if lease is not None else actor.address if actor is not None else None
        return (task.id, task.attempt, task.name, task.called, state, actor and actor.id, task.parent, at, pool and pool.want, pool and pool.strategy[0] == "group" and pool.strategy[1],
                task.made, began, ended, error)

    def tell(self):
        core = self._core
        with core.lock:
            self._telling = False
            rows = list(self._over)
            self._over.clear()
        if rows and core._head is not None:
            core._head.send("over", core.job["id"], rows)

    def known(self):
        """The tasks that the head may not know: finished ones, unfinished ones, and the tasks of
        other processes that run here.
        """
        core = self._core
        with core.lock:
            over = list(self._over)
            waits = [self._row(task, _state(task)) for task in islice(core.tasks.values(), MOST)]
        runs = core.executor.runs() if core.executor is not None else ()
        return core.job["id"], over, waits, runs


def _state(task):
    if not task.ready:
        return "PENDING_ARGS_AVAIL"
    return "PENDING_NODE_ASSIGNMENT" if task.link is None else "SUBMITTED_TO_WORKER"


class History:
    """The head's history: the finished tasks of all callers."""

    def __init__(self):
        self._over = deque(maxlen=MOST)

    def told(self, job, rows):
        self._over.extend((job, row) for row in rows)

    def with_known(self, answers):
        """All tasks, with the answers that nodes have just given: (job, row) for the finished tasks
        in the order of their ends, and then for the others.
        """
        over, waits, runs, pids = {(row[0], row[1]): (job, row) for job, row in self._over}, {}, {}, {}
        for processes, their_pids in answers:
            pids.update(their_pids)
            for job, theirs, waiting, running in processes:
                over.update(((row[0], row[1]), (job, row)) for row in theirs)
                waits.update((row[0], (job, row)) for row in waiting)
                runs.update(running)
        rows = list(over.values())[-MOST:] if MOST else []
        for task, (job, row) in waits.items():
            if (task, row[1]) not in over:
                rows.append((job, (*row[:4], "RUNNING", *row[5:11], runs[task], *row[12:]) if task in runs and row[4] == "SUBMITTED_TO_WORKER" else row))
        return rows, pids


def of_actor(actor):
    """The task that creates an actor."""
    if actor.state == "DEAD" and (actor.ended is None or actor.error is not None):
        state = "FAILED"
    elif actor.ended is not None:
        state = "FINISHED"
    elif actor.began is not None:
        state = "RUNNING"
    else:
        state = "PENDING_ARGS_AVAIL" if actor.state == "DEPENDENCIES_UNREADY" else "PENDING_NODE_ASSIGNMENT"
    called, strategy = f"{actor.spec['class']}.__init__", actor.spec.get("strategy")
    name = f"{actor.name}:{called}" if actor.name else called
    return (b"\xff" * 8 + actor.id, actor.restarts, name, called, state, actor.id, None, actor.process, actor.spec.get("placed"),
            strategy and strategy[0] == "group" and strategy[1], actor.made, actor.began, actor.ended, ("ACTOR_CREATION_FAILED", actor.why) if state == "FAILED" else None)


def gathered(loop, links, op, then):
    """Asks processes, and calls then with the answers that arrive in time."""
    links, answers, over = list(links), [], []

    def end():
        if not over:
            over.append(True)
            then(answers)

    def answered(value=None, error=None, _=()):
        left[0] -= 1
        if error is None:
            answers.append(value)
        if not left[0]:
            end()

    left = [len(links)]
    for ask in links:
        ask(answered, op)
    if links:
        loop.later(_ANSWER, end)
    else:
        end()


def worker_id(proc):
    return hashlib.sha224(proc.encode()).hexdigest()


def _ms(seconds):
    return None if seconds is None else int(seconds * 1000)


def task(job, row, pids):
    """A task in the words of Ray's state API."""
    task_id, attempt, name, called, state, actor, parent, at, want, group, made, began, ended, error = row
    events = [("PENDING_ARGS_AVAIL", made), ("RUNNING", began), (state, ended)]
    return {
        "task_id": task_id.hex(), "attempt_number": attempt, "name": name, "state": state, "job_id": job, "actor_id": actor.hex() if actor else None,
        "type": "ACTOR_CREATION_TASK" if task_id[:8] == b"\xff" * 8 else "ACTOR_TASK" if actor else "NORMAL_TASK", "func_or_class_name": called,
        "parent_task_id": parent.hex() if parent else "ff" * 20 + job, "node_id": at[1] if at else None, "worker_id": worker_id(at[0]) if at else None,
        "worker_pid": pids.get(at[0]) if at else None, "error_type": error[0] if error else None, "language": "PYTHON", "required_resources": {name: float(amount) for name, amount in (want or {}).items()},
        "runtime_env_info": None, "placement_group_id": group.hex() if group else None,
        "events": [{"state": s, "created_ms": t * 1000} for s, t in events if t], "profiling_data": {}, "creation_time_ms": _ms(made), "start_time_ms": _ms(began),
        "end_time_ms": _ms(ended), "task_log_info": None, "error_message": error[1] if error else None, "is_debugger_paused": None, "call_site": None,
        "label_selector": {}, "fallback_strategy": None,
    }


def trace(rows):
    """The finished tasks as events of a Chrome trace, with a process for each node and a thread for
    each process.
    """
    events = []
    for _, row in rows:
        task_id, _, name, called, state, _, _, at, _, _, _, began, ended, error = row
        if at and began and ended:
            events.append({
                "cat": f"task::{name}", "name": called, "pid": at[2], "tid": f"worker:{worker_id(at[0])}", "ts": began * 1e6, "dur": (ended - began) * 1e6, "ph": "X",
                "cname": "generic_work" if error is None else "terrible", "args": {"name": called, "task_id": task_id.hex(), **({"type": error[0]} if error else {})},
            })
    return events


def summary(tasks):
    """The summary that `ray summary tasks` prints."""
    by, total = {}, {"NORMAL_TASK": 0, "ACTOR_TASK": 0, "ACTOR_CREATION_TASK": 0}
    for t in tasks:
        one = by.setdefault(t["name"], {"func_or_class_name": t["name"], "type": t["type"], "state_counts": {}})
        one["state_counts"][t["state"]] = one["state_counts"].get(t["state"], 0) + 1
        total[t["type"]] += 1
    return {"summary": by, "total_tasks": total["NORMAL_TASK"], "total_actor_tasks": total["ACTOR_TASK"], "total_actor_scheduled": total["ACTOR_CREATION_TASK"],
            "summary_by": "func_name"}
