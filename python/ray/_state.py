"""The state of a cluster in the words of Ray's state API, from the head of its session or else from
golaunch's coordinator.
"""

import datetime
import json

from . import _cluster, _history
from .job_submission import JobSubmissionClient, run

_BYTES = ("memory", "object_store_memory")
MOST = 10_000  # rows of an answer, as in Ray

# The columns that Ray shows for each kind of rows, and the further columns with --detail.
COLUMNS = {
    "nodes": ("node_id node_ip is_head_node state state_message node_name resources_total labels", "start_time_ms end_time_ms"),
    "actors": ("actor_id class_name state job_id name node_id pid ray_namespace",
               "serialized_runtime_env required_resources death_cause is_detached placement_group_id repr_name num_restarts "
               "num_restarts_due_to_lineage_reconstruction num_restarts_due_to_node_preemption call_site label_selector fallback_strategy"),
    "tasks": ("task_id attempt_number name state job_id actor_id type func_or_class_name parent_task_id node_id worker_id worker_pid error_type",
              "language required_resources runtime_env_info placement_group_id events profiling_data creation_time_ms start_time_ms end_time_ms task_log_info "
              "error_message is_debugger_paused call_site label_selector fallback_strategy"),
    "placement_groups": ("placement_group_id name creator_job_id state", "bundles is_detached stats"),
    "jobs": ("job_id submission_id entrypoint type status message error_type driver_info", ""),
}
COLUMNS = {what: (basic.split(), more.split()) for what, (basic, more) in COLUMNS.items()}


def of_head(what, said):
    """Rows with all columns, from the head's answer about nodes, actors, groups or tasks."""
    rows = _OF_HEAD[what](said)
    columns = sum(COLUMNS[what], [])
    return [{**dict.fromkeys(columns), **row} for row in rows]


def _nodes(said):
    return [{
        "node_id": n["id"], "node_ip": n["address"][2], "is_head_node": "node:__internal_head__" in n["total"], "state": "ALIVE" if n["alive"] else "DEAD",
        "state_message": None if n["alive"] else n["why"], "node_name": n["address"][2], "resources_total": n["total"],
        "labels": {"ray.io/node-id": n["id"], **n["labels"]}, "free": n["free"],
    } for n in said]


def _actors(said):
    return [{
        "actor_id": a["actor_id"].hex(), "class_name": a["class_name"], "state": a["state"], "job_id": a["job_id"], "name": a["name"], "node_id": a["node_id"], "pid": a["pid"],
        "ray_namespace": a["namespace"], "serialized_runtime_env": "{}", "required_resources": {name: float(amount) for name, amount in (a["want"] or {}).items()}, "death_cause": {"message": a["why"]} if a["why"] else None,
        "is_detached": a["detached"], "repr_name": "", "num_restarts": a["restarts"], "num_restarts_due_to_lineage_reconstruction": 0,
        "num_restarts_due_to_node_preemption": 0, "label_selector": {},
    } for a in said]


def _tasks(said):
    rows, pids = said
    return [_history.task(job, row, pids) for job, row in rows]


def _groups(said):
    return [{
        "placement_group_id": g["id"].hex(), "name": g["name"], "creator_job_id": g["job"], "state": g["state"], "is_detached": g["detached"],
        "bundles": [{"bundle_id": {"placement_group_id": g["id"].hex(), "bundle_index": i}, "unit_resources": b, "node_id": g["nodes"][i] if g["nodes"] else None}
                    for i, b in enumerate(g["bundles"])],
    } for g in said]


_OF_HEAD = {"nodes": _nodes, "actors": _actors, "tasks": _tasks, "placement_groups": _groups}
_ASKED = {"placement_groups": "groups"}


def question(what):
    """The question to the head about a kind of rows."""
    return _ASKED.get(what, what)


def rows(coordinator, what):
    """The rows of a cluster, with all columns."""
    if what == "jobs":
        return [j.dict() for j in JobSubmissionClient(coordinator).list_jobs()]
    found = _cluster.ask(coordinator, question(what))
    if found is not None:
        return of_head(what, found)
    return _nodes_of_coordinator(coordinator) if what == "nodes" else []


def predicate(text):
    """A filter: KEY=VALUE or KEY!=VALUE."""
    key, equal, value = text.partition("=")
    how = "!=" if key.endswith("!") else "="
    key = key.rstrip("!") if how == "!=" else key
    if not equal or not key or not value:
        raise ValueError(f"The format of a given filter {text} is invalid: Please provide key=val or key!=val format string.")
    return key, how, value


def selected(what, listed, filters=(), limit=None, detail=True):
    """The rows that match all filters, up to a limit, and the number of matching rows without the
    limit.
    """
    basic, more = COLUMNS[what]
    names = {name.lower(): name for name in basic + more}
    for key, how, value in filters or ():
        if how not in ("=", "!="):
            raise ValueError(f"filters: {how!r} is not one of = and !=")
        name = names.get(key.lower())
        if name is None:
            raise ValueError(f"Invalid filter key {key!r} for resource {what!r}. Available filter keys are: {', '.join(names.values())}")
        listed = [r for r in listed if (str(r.get(name)).lower() == str(value).lower()) == (how == "=")]
    shown = listed[:MOST if limit is None else limit]
    return [{**{name: r.get(name) for name in basic}, **{name: r.get(name) if detail else None for name in more}} for r in shown], len(listed)


def _nodes_of_coordinator(coordinator):
    """The nodes of a cluster without a session."""
    listed = []
    for n in json.loads(run("status", "--coordinator", coordinator, "--json"))["nodes"]:
        said = _cluster.described(n)
        total = {"CPU": float(said.get("num_cpus", n["cpus"])), f"node:{n['address']}": 1.0}
        if n["gpus"]:
            total["GPU"] = float(n["gpus"])
        for name in _BYTES:
            if said.get(name):
                total[name] = float(said[name])
        total.update({name: float(amount) for name, amount in (said.get("resources") or {}).items()})
        if said.get("head"):
            total["node:__internal_head__"] = 1.0
        listed.append({
            "node_id": n["name"], "node_ip": n["address"], "is_head_node": bool(said.get("head")), "state": "DEAD" if n["state"] == "lost" else "ALIVE", "state_message": None,
            "node_name": n["address"], "resources_total": total, "labels": {"ray.io/node-id": n["name"], **(said.get("labels") or {})},
            "free": {**total, **({"GPU": float(n["gpus"] - n["gpus_used"])} if n["gpus"] else {})},
        })
    return listed


def timeline(coordinator):
    """A Chrome trace of the finished tasks."""
    found = _cluster.ask(coordinator, "tasks")
    return _history.trace(found[0]) if found is not None else []


def actors_by_class(listed):
    """The summary that `ray summary actors` prints."""
    by = {}
    for a in listed:
        counts = by.setdefault(a["class_name"], {"class_name": a["class_name"], "state_counts": {}})["state_counts"]
        counts[a["state"]] = counts.get(a["state"], 0) + 1
    return {"summary": by, "total_actors": len(listed), "summary_by": "class"}


def summary(what, listed):
    return _history.summary(listed) if what == "tasks" else actors_by_class(listed)


def usage(listed):
    """The used and the total amount of each resource, over all nodes that are alive."""
    total, free = {}, {}
    for n in listed:
        if n["state"] == "ALIVE":
            for name, amount in n["resources_total"].items():
                total[name] = total.get(name, 0) + amount
                free[name] = free.get(name, 0) + n["free"].get(name, 0)
    return {name: (round(total[name] - free[name], 4), total[name]) for name in sorted(total)}


def _size(n):
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.2f}{unit}"
    return f"{int(n)}B"


def status(coordinator):
    """The text that `ray status` prints."""
    listed = rows(coordinator, "nodes")
    alive = [f" 1 node_{n['node_id']}" for n in listed if n["state"] == "ALIVE"]
    dead = [f" node_{n['node_id']}: {n['state_message'] or 'it is lost'}" for n in listed if n["state"] != "ALIVE"]
    used = []
    for name, (some, total) in usage(listed).items():
        if not name.startswith("node:"):
            used.append(f" {_size(some)}/{_size(total)} {name}" if name in _BYTES else f" {some}/{total} {name}")
    return "\n".join([
        f"======== Autoscaler status: {datetime.datetime.now()} ========", "Node status", "-" * 63, "Active:", *(alive or [" (no active nodes)"]), "Pending:", " (no pending nodes)",
        "Recent failures:", *(dead or [" (no failures)"]), "", "Resources", "-" * 63, "Total Usage:", *used, "", "From request_resources:", " (none)", "Pending Demands:",
        " (no resource demands)"])
