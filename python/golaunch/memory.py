"""Memory that processes of one machine share: files in memory (memfd), which are written anew when nobody else has them any more.

Fresh pages cost several times what copying to them costs, so a file is kept for the next frame. Nobody needs to say that he is done with one: each
use is an open file description of its own, made by opening the file again, which whoever has a descriptor of it or a mapping keeps open, children
after a fork too. The kernel grants a write lease (fcntl(2), F_SETLEASE) only to who has the sole description of a file that may write.
"""

import _thread
import errno
import fcntl
import mmap
import os
import time

# How long what is kept may be of no use, in seconds.
AGE = 10.0
# How much is kept by a process at most: of what was sent last, 2 GiB, or a sixteenth of a machine with less than 32 GiB.
_KEPT = min(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)
_FILES = 16
_AT_ONCE = 16 << 20  # bytes copied before other threads may run
_MAP_POPULATE = 0x8000  # of Linux, which module mmap names from 3.10 on
# The offset of a description says how many bytes count, and above them which use of the file it is: the two are never the same for two uses.
_LENGTH_BITS = 44
_USES = 1 << 19


class Segment:
    """A use of memory: a descriptor that is closed when nobody refers to it."""

    __slots__ = ("fd",)

    def __init__(self, fd):
        self.fd = fd

    def __del__(self):
        os.close(self.fd)


class _File:
    """Memory of this process, which it alone writes to."""

    def __init__(self, size):
        self.size, self.map, self.uses, self.used = size, None, 0, 0.0
        made = os.memfd_create("golaunch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(made, size)
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)  # who maps it keeps all of it
            self.fd = _opened_again(made)  # the first description is not among those that the kernel counts for a lease
        finally:
            os.close(made)

    def __del__(self):
        if self.map is not None:
            self.map.close()
        if hasattr(self, "fd"):
            os.close(self.fd)

    def free(self):
        """Whether nobody else has it."""
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return False
            raise
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def lend(self, length):
        """Begins a use of its first bytes."""
        segment = Segment(_opened_again(self.fd))
        self.uses += 1
        self.used = time.monotonic()
        os.lseek(segment.fd, (self.uses % _USES) << _LENGTH_BITS | length, os.SEEK_SET)
        return segment

    def write(self, at, view):
        if self.uses == 1:  # perhaps the only one: a mapping of fresh pages costs more than it brings
            _write(self.fd, at, view)
            return
        if self.map is None:
            self.map = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | _MAP_POPULATE)
        for begin in range(0, len(view), _AT_ONCE):
            part = view[begin:begin + _AT_ONCE]
            self.map[at + begin:at + begin + len(part)] = part


class Pool:
    """The memory that this process has written and keeps, the last used at the end."""

    def __init__(self):
        self.files = []
        self._lock = _thread.allocate_lock()
        self._works = None  # not known before the first file
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self):
        """In a child after a fork: what both would write to is the parent's."""
        self.files, self._lock = [], _thread.allocate_lock()

    def share(self, parts, align):
        """A segment that has the parts one after another, each at a multiple of align."""
        views = [memoryview(p).cast("B") for p in parts]
        length = sum(_up(len(v), align) for v in views)
        file, segment = self._take(length)
        at = 0
        for v in views:
            if file is None:
                _write(segment.fd, at, v)
            else:
                file.write(at, v)
            at += _up(len(v), align)
        if file is None:
            os.ftruncate(segment.fd, length)
        return segment

    def _take(self, length):
        with self._lock:
            if self._works is not False and length <= _KEPT:
                try:
                    return self._kept(length)
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                        raise
                    self._works, self.files = False, []  # no /proc, or a kernel without leases
        return None, Segment(os.memfd_create("golaunch", os.MFD_CLOEXEC))

    def _kept(self, length):
        fits = [f for f in self.files if length <= f.size <= 2 * length]
        file = next((f for f in sorted(fits, key=lambda f: f.size) if f.free()), None)
        if file is None:
            file = _File(_up(length, max(mmap.PAGESIZE, 1 << max(0, length.bit_length() - 4))))  # the next one may be a little larger
            if self._works is None:
                if not file.free():
                    raise OSError(errno.ENOTSUP, "leases do not tell who has a file in memory")
                self._works = True
        else:
            self.files.remove(file)
        segment = file.lend(length)
        self.files.append(file)
        # A file that others still have is theirs alone from now on.
        while len(self.files) > _FILES or sum(f.size for f in self.files) > _KEPT and len(self.files) > 1:
            del self.files[0]
        return file, segment

    def trim(self):
        """Gives back what has been of no use for a while."""
        with self._lock:
            late = time.monotonic() - AGE
            try:
                self.files = [f for f in self.files if f.used > late or not f.free()]
            except OSError:
                self._works, self.files = False, []  # this process is another user's now

    def clear(self):
        with self._lock:
            self.files = []


def _opened_again(fd):
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def _write(fd, at, view):
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:done + (1 << 30)], at + done)


def _up(n, to):
    return -(-n // to) * to


POOL = Pool()
