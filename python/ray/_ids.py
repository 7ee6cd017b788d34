"""Ray's classes of ids."""

import os


class BaseID:
    SIZE = 28
    __slots__ = ("_bytes",)

    def __init__(self, id):
        self._bytes = bytes(id)

    @classmethod
    def from_hex(cls, text):
        return cls(bytes.fromhex(text))

    @classmethod
    def from_binary(cls, data):
        return cls(data)

    @classmethod
    def from_random(cls):
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def nil(cls):
        return cls(b"\xff" * cls.SIZE)

    @classmethod
    def size(cls):
        return cls.SIZE

    def is_nil(self):
        return self._bytes == b"\xff" * len(self._bytes)

    def binary(self):
        return self._bytes

    def hex(self):
        return self._bytes.hex()

    def __eq__(self, other):
        return type(other) is type(self) and other._bytes == self._bytes

    def __hash__(self):
        return hash(self._bytes)

    def __repr__(self):
        return f"{type(self).__name__}({self._bytes.hex()})"

    def __reduce__(self):
        return type(self), (self._bytes,)


class UniqueID(BaseID):
    __slots__ = ()


class JobID(BaseID):
    SIZE = 4
    __slots__ = ()

    @classmethod
    def from_int(cls, number):
        return cls(number.to_bytes(4, "little"))


class TaskID(BaseID):
    SIZE = 24
    __slots__ = ()


class NodeID(BaseID):
    __slots__ = ()


class WorkerID(BaseID):
    __slots__ = ()


class ActorID(BaseID):
    SIZE = 16
    __slots__ = ()


class PlacementGroupID(BaseID):
    SIZE = 18
    __slots__ = ()


class FunctionID(BaseID):
    __slots__ = ()


class ActorClassID(BaseID):
    __slots__ = ()


class ClusterID(BaseID):
    __slots__ = ()
