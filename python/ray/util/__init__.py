"""ray.util."""

import importlib

from .._unserved import refuse
from . import scheduling_strategies  # noqa: F401

_HOMES = {
    "placement_group": "placement_group", "remove_placement_group": "placement_group", "placement_group_table": "placement_group",
    "get_placement_group": "placement_group", "get_current_placement_group": "placement_group", "ActorPool": "actor_pool",
    "list_named_actors": "_named", "get_node_ip_address": "_named",
}
_LAZY = {"collective", "multiprocessing", "queue", "state"}


def __getattr__(name):
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    refuse(__name__, name)
