"""The few of Ray's own modules that trainers use."""

from . import services, state, worker  # noqa: F401
