"""Placement groups."""

import os

from .. import _session
from .._ids import PlacementGroupID

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class PlacementGroup:
    """Bundles of resources that are reserved together."""

    def __init__(self, id, bundle_cache=None):
        self.id, self.bundle_cache = id, bundle_cache

    @staticmethod
    def empty():
        return PlacementGroup(PlacementGroupID.nil())

    @property
    def is_empty(self):
        return self.id.is_nil()

    @property
    def bundle_specs(self):
        if not self.bundle_cache and not self.is_empty:
            self.bundle_cache = next((g["bundles"] for g in _groups() if g["id"] == self.id.binary()), [])
        return self.bundle_cache or []

    @property
    def bundle_count(self):
        return len(self.bundle_specs)

    def ready(self):
        """A reference whose value is the group, once it has its bundles."""
        core = _session.core()
        return core.promise(core.head, lambda state: self if state == "CREATED" else _removed(), "group_ready", self.id.binary())

    def wait(self, timeout_seconds=30):
        """Whether the group gets its bundles within a number of seconds."""
        import ray

        ready, _ = ray.wait([self.ready()], timeout=timeout_seconds)
        return bool(ready)

    def __eq__(self, other):
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __reduce__(self):
        return PlacementGroup, (self.id, self.bundle_cache)


def _removed():
    from ..exceptions import TaskPlacementGroupRemoved

    raise TaskPlacementGroupRemoved()


def placement_group(bundles, strategy="PACK", name="", lifetime=None, _max_cpu_fraction_per_node=None, _soft_target_node_id=None, bundle_label_selector=None):
    """Reserves bundles, such as [{"CPU": 1, "GPU": 1}] * 8."""
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, got {type(bundles)}.")
    if not bundles:
        raise ValueError("Bundles must be a non-empty list of resource dictionaries. For example: `[{\"CPU\": 1.0}, {\"GPU\": 1.0}]`. Got empty list instead.")
    for bundle in bundles:
        if not isinstance(bundle, dict) or not bundle or any(not isinstance(k, str) or not isinstance(v, (int, float)) for k, v in bundle.items()):
            raise ValueError("Bundles must be a non-empty list of non-empty resource dictionaries. For example: `[{\"CPU\": 1.0}, {\"GPU\": 1.0}]`. "
                             f"Got {bundles} instead.")
        if all(not amount for amount in bundle.values()):
            raise ValueError(f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}")
        if any(amount < 0 for amount in bundle.values()):
            raise ValueError(f"a bundle with a negative amount: {bundle}")
    if strategy not in _STRATEGIES:
        raise ValueError(f"Invalid placement group strategy {strategy}. Supported strategies are: {set(_STRATEGIES)}.")
    if lifetime not in (None, "detached"):
        raise ValueError("placement group `lifetime` argument must be either `None` or 'detached'")
    if bundle_label_selector:
        raise NotImplementedError("golaunch does not serve bundle_label_selector; use custom resources in the bundles")
    core = _session.core()
    group_id = os.urandom(14) + bytes.fromhex(core.job["id"])
    bundles = [{k: float(v) for k, v in b.items() if v} for b in bundles]
    core.ask(core.head, "group", group_id, bundles, strategy, name, lifetime == "detached", core.job["id"])
    return PlacementGroup(PlacementGroupID(group_id), bundles)


def remove_placement_group(placement_group):
    """Gives a group's bundles back, and ends everything that runs in them."""
    core = _session.core()
    core.ask(core.head, "group_remove", placement_group.id.binary())


def get_placement_group(placement_group_name):
    """The placement group with a name."""
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    core = _session.core()
    found, _ = core.ask(core.head, "group_named", placement_group_name)
    if found is None:
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}")
    return PlacementGroup(PlacementGroupID(found[0]), found[1])


def get_current_placement_group():
    """The placement group of the task or actor that asks, or None."""
    group = _session.group_of_task()
    return PlacementGroup(PlacementGroupID(group[1])) if group is not None else None


def _groups():
    core = _session.core()
    return core.ask(core.head, "groups")[0]


def placement_group_table(placement_group=None):
    """Facts about a group, or about each group."""
    table = {}
    for g in _groups():
        table[g["id"].hex()] = {
            "placement_group_id": g["id"].hex(), "name": g["name"], "bundles": dict(enumerate({k: float(v) for k, v in b.items()} for b in g["bundles"])),
            "bundles_to_node_id": {i: g["nodes"][i] if g["nodes"] else "" for i in range(len(g["bundles"]))}, "strategy": g["strategy"], "state": g["state"],
            "stats": {},
        }
    if placement_group is None:
        return table
    return table.get(placement_group.id.hex(), {})


def check_placement_group_index(placement_group, bundle_index):
    if bundle_index >= placement_group.bundle_count or bundle_index < -1:
        raise ValueError(f"placement group bundle index {bundle_index} is invalid. Valid placement group indexes: 0-{placement_group.bundle_count - 1}")
