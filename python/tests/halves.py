"""Imported into the processes of a session: the main thread sends messages in two halves, a while apart."""

import threading
import time

from ray import _wire

_write = _wire.Connection._write


def _in_halves(self, frame, fds):
    if fds or threading.current_thread() is not threading.main_thread() or threading.active_count() == 1:
        return _write(self, frame, fds)
    half = len(frame) // 2
    if _write(self, frame[:half], fds) != half:
        raise RuntimeError("no room for half a message")
    end = time.monotonic() + 0.02
    while time.monotonic() < end:  # a signal is handled here
        pass
    return half + _write(self, frame[half:], fds)


_wire.Connection._write = _in_halves
