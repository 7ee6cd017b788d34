"""What the cluster has: actors, nodes, placement groups and tasks. A row has its columns as attributes and as items."""

import sys

from .. import _session, _state
from .._unserved import refuse

sys.modules[__name__ + ".api"] = sys.modules[__name__]


class StateSchema(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def asdict(self):
        return dict(self)


class ActorState(StateSchema):
    pass


class NodeState(StateSchema):
    pass


class PlacementGroupState(StateSchema):
    pass


class TaskState(StateSchema):
    pass


class JobState(StateSchema):
    pass


_SCHEMAS = {"actors": ActorState, "nodes": NodeState, "placement_groups": PlacementGroupState, "tasks": TaskState, "jobs": JobState}


def _all(what, address):
    if _session.initialized() and what != "jobs":
        core = _session.core()
        return _state.of_head(what, core.ask(core.head, _state.question(what))[0])
    from ..job_submission import coordinator

    return _state.rows(coordinator(address), what)


def _rows(what, address, filters, limit, detail):
    shown, _ = _state.selected(what, _all(what, address), filters, limit, detail)
    return [_SCHEMAS[what](row) for row in shown]


def _one(what, id, address):
    found = _rows(what, address, [(_state.COLUMNS[what][0][0], "=", id)], None, True)
    return found[0] if found else None


def list_actors(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _rows("actors", address, filters, limit, detail)


def list_nodes(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _rows("nodes", address, filters, limit, detail)


def list_placement_groups(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _rows("placement_groups", address, filters, limit, detail)


def list_tasks(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    """The unfinished tasks, and the tasks that finished last."""
    return _rows("tasks", address, filters, limit, detail)


def list_jobs(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _rows("jobs", address, filters, limit, detail)


def get_actor(id, address=None, timeout=30, _explain=False):
    """An actor by its hexadecimal id, or None."""
    return _one("actors", id, address)


def get_node(id, address=None, timeout=30, _explain=False):
    return _one("nodes", id, address)


def get_placement_group(id, address=None, timeout=30, _explain=False):
    return _one("placement_groups", id, address)


def get_task(id, address=None, timeout=30, _explain=False):
    """The attempts of a task, by its hexadecimal id or by an ObjectRef of its result; a list if
    there are several.
    """
    from .. import ObjectRef

    found = _rows("tasks", address, [("task_id", "=", id.task_id().hex() if isinstance(id, ObjectRef) else id)], None, True)
    return found if len(found) > 1 else found[0] if found else None


def summarize_tasks(address=None, timeout=30, raise_on_missing_output=True, _explain=False):
    return {"cluster": _state.summary("tasks", _all("tasks", address))}


def summarize_actors(address=None, timeout=30, raise_on_missing_output=True, _explain=False):
    return {"cluster": _state.summary("actors", _all("actors", address))}


def __getattr__(name):
    refuse(__name__, name)
