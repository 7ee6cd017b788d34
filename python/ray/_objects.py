"""Values as bytes, and references to objects."""

import _pickle
import io
import mmap
import os
import struct
import threading
from types import GenericAlias

import cloudpickle

SMALL = 100 << 10  # larger objects are in memory that the node's processes share, as in Ray
_APART = 64 << 10  # larger buffers are not copied into the pickle
_ALIGN = 64
_COUNT = struct.Struct("<IQ")
_SIZE = struct.Struct("<Q")
_PLAIN = {int, float, bool, type(None), str, bytes, complex}

_dumping = threading.local()


def plain(value):
    """Whether a value is small and can be pickled without cloudpickle."""
    kind = type(value)
    if kind in _PLAIN:
        return kind not in (str, bytes) or len(value) < _APART
    if kind in (tuple, list):
        return len(value) <= 32 and all(type(v) in _PLAIN and (type(v) not in (str, bytes) or len(v) < 1024) for v in value)
    return False


def dumps(value):
    """The pickle of a value, the buffers beside it, and the references and handles in it."""
    if plain(value):
        return _pickle.dumps(value, 5), (), ()
    buffers, nested = [], []

    def beside(buffer):
        try:
            raw = buffer.raw()
        except BufferError:  # the buffer is not contiguous
            return True
        buffers.append(raw)  # small buffers too: as in Ray, an array that is made of them is read-only
        return False

    before = getattr(_dumping, "nested", None)
    _dumping.nested = nested
    try:
        with io.BytesIO() as file:
            cloudpickle.Pickler(file, protocol=5, buffer_callback=beside).dump(value)
            return file.getvalue(), buffers, nested
    finally:
        _dumping.nested = before


def noted(what):
    """Notes a reference or a handle in the value that is being pickled."""
    nested = getattr(_dumping, "nested", None)
    if nested is not None:
        nested.append(what)


def loads(body, buffers=()):
    return _pickle.loads(body, buffers=buffers)


def size_of(body, buffers):
    return len(body) + sum(len(b) for b in buffers)


def parts(body, buffers):
    """The parts of a value as an object in shared memory, each part aligned, and their size in
    bytes.
    """
    head = _COUNT.pack(len(buffers), len(body)) + b"".join(_SIZE.pack(len(b)) for b in buffers) + body
    made = [head, *buffers]
    return made, sum(-(-len(p) // _ALIGN) * _ALIGN for p in made)


def write(fd, made):
    """Writes the parts of an object to a file."""
    at = 0
    for part in made:
        part = memoryview(part).cast("B")
        done = 0
        while done < len(part):
            done += os.pwrite(fd, part[done:done + (1 << 30)], at + done)
        at += -(-len(part) // _ALIGN) * _ALIGN
    os.ftruncate(fd, at)


def mapped(fd, size):
    """The pickle and the buffers of an object in shared memory, which cannot be written."""
    view = memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ))
    count, body = _COUNT.unpack_from(view, 0)
    at = _COUNT.size + count * _SIZE.size
    sizes = [_SIZE.unpack_from(view, _COUNT.size + i * _SIZE.size)[0] for i in range(count)]
    text = view[at:at + body]
    at = -(-(at + body) // _ALIGN) * _ALIGN
    buffers = []
    for size in sizes:
        buffers.append(view[at:at + size])
        at += -(-size // _ALIGN) * _ALIGN
    return text, buffers


def _core():
    from . import _session

    return _session.core()


class ObjectRef:
    """A reference to an object. The object lives as long as it has a reference. Its owner is the
    process that put the object, or that called the task.
    """

    __slots__ = ("_id", "_owner", "_core", "__weakref__")
    __class_getitem__ = classmethod(GenericAlias)  # so that annotations such as ObjectRef[int] work

    def __init__(self, oid, owner, core):
        """The caller has already counted this reference."""
        self._id, self._owner, self._core = oid, owner, core

    def __del__(self):
        core = self._core
        if core is not None:
            core.dropped(self._id)

    def binary(self):
        return self._id

    def hex(self):
        return self._id.hex()

    def is_nil(self):
        return False

    def task_id(self):
        from ._ids import TaskID

        return TaskID(self._id[:24])

    def job_id(self):
        from ._ids import JobID

        return JobID(self._id[20:24])

    def __eq__(self, other):
        return type(other) is type(self) and self._id == other._id

    def __hash__(self):
        return hash(self._id)

    def __repr__(self):
        return f"ObjectRef({self._id.hex()})"

    def __reduce__(self):
        self._core.alive()
        noted(self)
        return _adopted, (self._id, self._owner, self._core.session)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def future(self):
        """A concurrent.futures.Future."""
        from concurrent.futures import Future

        future = Future()

        def done(desc):
            try:
                value = self._core.load(self, desc)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)

        # making the value may need the loop that calls this function
        self._core.when_ready(self, lambda desc: self._core.apart(done, desc))
        return future

    def as_future(self, _internal=False):
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        core = self._core

        def settle(desc):
            if future.cancelled():
                return
            try:
                value = core.load(self, desc)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)

        def ready(desc):
            try:
                loop.call_soon_threadsafe(settle, desc)
            except RuntimeError:
                pass  # the loop is closed

        core.when_ready(self, ready)
        return future

    def __await__(self):
        return self.as_future().__await__()


ObjectID = ObjectRef


def _adopted(oid, owner, session):
    core = _core()
    if core.session != session:
        raise ValueError("this ObjectRef is of another cluster, or of one that was shut down")
    return core.adopt(oid, owner)


def close_all(fds):
    for fd in fds:
        os.close(fd)
