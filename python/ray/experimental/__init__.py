"""Old homes of names."""

from .._unserved import refuse


def __getattr__(name):
    refuse(__name__, name)
