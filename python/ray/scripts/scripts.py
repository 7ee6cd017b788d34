"""The parts of the command ray that programs import."""

from .. import _api


def memory_summary(address=None, group_by="NODE_ADDRESS", sort_by="OBJECT_SIZE", units="B", line_wrap=True, stats_only=False, num_entries=None):
    """The resources of each node, and how much of each is free."""
    return "".join(f"{n['address'][2]}: {n['free']} free of {n['total']}\n" for n in _api._nodes() if n["alive"])
