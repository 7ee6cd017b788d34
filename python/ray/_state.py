"""What a cluster has, in the words of Ray's state API: from the head of its session, and else from golaunch's coordinator."""

import datetime
import json

from . import _cluster
from .job_submission import JobSubmissionClient, run

_BYTES = ("memory", "object_store_memory")


def nodes(coordinator):
    """The nodes of the session of a cluster, or of the cluster if it has none."""
    found = _cluster.ask(coordinator, "nodes")
    if found is not None:
        return [{
            "node_id": n["id"], "node_ip": n["address"][2], "is_head_node": "node:__internal_head__" in n["total"], "state": "ALIVE" if n["alive"] else "DEAD",
            "state_message": None if n["alive"] else n["why"], "node_name": n["address"][2], "resources_total": n["total"],
            "labels": {"ray.io/node-id": n["id"], **n["labels"]}, "free": n["free"],
        } for n in found]
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


def actors(coordinator):
    return [{
        "actor_id": a["actor_id"].hex(), "class_name": a["class_name"], "state": a["state"], "job_id": a["job_id"], "name": a["name"], "node_id": a["node_id"], "pid": a.get("pid"),
        "ray_namespace": a["namespace"],
    } for a in _cluster.ask(coordinator, "actors") or []]


def jobs(coordinator):
    return [j.dict() for j in JobSubmissionClient(coordinator).list_jobs()]


def usage(listed):
    """Used and total of each resource of nodes that are alive."""
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
    """What `ray status` prints."""
    listed = nodes(coordinator)
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
