"""The resources of the cluster."""

import sys

from .. import _api
from ..util import placement_group as _groups

state = sys.modules[__name__]


def placement_group_table(placement_group_id=None):
    table = _groups.placement_group_table()
    return table if placement_group_id is None else table.get(placement_group_id.hex(), {})


def available_resources_per_node():
    return {n["id"]: n["free"] for n in _api._nodes() if n["alive"]}


def total_resources_per_node():
    return {n["id"]: n["total"] for n in _api._nodes() if n["alive"]}
