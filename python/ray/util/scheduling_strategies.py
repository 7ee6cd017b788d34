"""Where a task or an actor runs."""

from .._unserved import refuse


class PlacementGroupSchedulingStrategy:
    def __init__(self, placement_group, placement_group_bundle_index=-1, placement_group_capture_child_tasks=None):
        self.placement_group, self.placement_group_bundle_index = placement_group, placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft, _spill_on_unavailable=False, _fail_on_unavailable=False):
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft


class NodeLabelSchedulingStrategy:
    def __init__(self, hard=None, *, soft=None):
        raise NotImplementedError("golaunch does not serve NodeLabelSchedulingStrategy; use NodeAffinitySchedulingStrategy, or a custom resource")


def __getattr__(name):
    refuse(__name__, name)
