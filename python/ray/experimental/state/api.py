"""ray.util.state, under its old name."""

from ray.util.state import get_actor, list_actors, list_nodes, list_placement_groups  # noqa: F401
