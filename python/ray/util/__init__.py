"""ray.util."""

import importlib

from . import scheduling_strategies  # noqa: F401

_HOMES = {
    "placement_group": "placement_group", "remove_placement_group": "placement_group", "placement_group_table": "placement_group",
    "get_placement_group": "placement_group", "get_current_placement_group": "placement_group", "ActorPool": "actor_pool",
    "list_named_actors": "_named", "get_node_ip_address": "_named",
}


def __getattr__(name):
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ray.util' has no attribute {name!r} (this is golaunch-ray: docs/from-ray.md lists what it serves)")
