"""ray.types."""

from ._objects import ObjectRef  # noqa: F401
