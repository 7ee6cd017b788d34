"""Objects to bytes and back: pickle protocol 5, with large buffers beside the pickle."""

import _pickle

from .wire import SMALL


def dumps(value):
    """The pickle of a value, and the buffers beside it."""
    buffers = []

    def beside(buffer):
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: pickle copies it
            return True
        if raw.nbytes < SMALL:
            return True
        buffers.append(raw)
        return False

    return _pickle.dumps(value, 5, buffer_callback=beside), buffers


def loads(body, buffers):
    return _pickle.loads(body, buffers=buffers)
