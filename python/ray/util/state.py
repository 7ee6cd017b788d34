"""What the cluster has: actors, nodes and placement groups, as dicts."""

from .. import _api, _session
from .placement_group import placement_group_table


def _actors():
    core = _session.core()
    return [{
        "actor_id": a["actor_id"].hex(), "class_name": a["class_name"], "state": a["state"], "job_id": a["job_id"], "name": a["name"], "node_id": a["node_id"],
        "ray_namespace": a["namespace"], "num_restarts": a["restarts"], "death_cause": a["why"] or None,
    } for a in core.ask(core.head, "actors")[0]]


def _selected(rows, filters, limit):
    for key, how, value in filters or ():
        if how not in ("=", "!="):
            raise ValueError(f"filters: {how!r} is not one of = and !=")
        rows = [r for r in rows if (str(r.get(key)).lower() == str(value).lower()) == (how == "=")]
    return rows[:limit]


def get_actor(id, address=None, timeout=30, _explain=False):
    """An actor by its hexadecimal id, or None."""
    return next((a for a in _actors() if a["actor_id"] == id), None)


def list_actors(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _selected(_actors(), filters, limit)


def list_nodes(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _selected([{
        "node_id": n["id"], "node_ip": n["address"][2], "is_head_node": "node:__internal_head__" in n["total"], "state": "ALIVE" if n["alive"] else "DEAD",
        "state_message": n["why"] or None, "node_name": n["address"][2], "resources_total": n["total"], "labels": n["labels"],
    } for n in _api._nodes()], filters, limit)


def list_placement_groups(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True, _explain=False):
    return _selected([{
        "placement_group_id": g["placement_group_id"], "name": g["name"], "state": g["state"], "bundles": g["bundles"],
    } for g in placement_group_table().values()], filters, limit)


def __getattr__(name):
    if name.startswith(("list_", "get_", "summarize_")):
        raise NotImplementedError(f"golaunch does not serve ray.util.state.{name}; use list_actors, list_nodes or list_placement_groups, or `golaunch status`")
    raise AttributeError(f"module 'ray.util.state' has no attribute {name!r}")
