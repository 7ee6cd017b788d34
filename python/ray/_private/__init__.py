"""The few of Ray's own modules that verl and NeMo RL use."""

from . import services, state  # noqa: F401
