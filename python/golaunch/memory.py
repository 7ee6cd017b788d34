"""Memory that processes of one machine share: files in memory (memfd), which are reused when no
other process has them.

Fresh pages cost several times as much as copying to them, so a file is kept for the next frame. No
process needs to report that it is done with a file: each use is an open file description of its
own, made by opening the file again. It lives while any process, including children after a fork,
has a descriptor or a mapping of it. The kernel grants a write lease (fcntl(2), F_SETLEASE) only for
a file with a single description that may write.
"""

import _signal
import _thread
import errno
import fcntl
import functools
import mmap
import os
import time

# How long unused memory is kept, in seconds.
AGE = 10.0
# Upper bounds for the memory that a process keeps from earlier frames: an eighth of the machine's
# memory for a controller, a quarter for all workers of a node together, and at most _MOST bytes in
# _FILES files for any process. A worker that echoes its input still maps that memory when the next
# call is written, so two files are used in turn.
_MOST = 3 << 30
_FILES = 256
_LOOKED_AT = 8  # files to ask before a new one is made
_AT_ONCE = 4 << 20  # bytes copied before other threads may run
_F_SETSIG = 10  # a constant of Linux; the module fcntl lacks it
_MAP_POPULATE = 0x8000  # a constant of Linux; the module mmap has it from 3.10 on
# A description's offset holds the number of valid bytes and, in its upper bits, the number of this
# use of the file. So no two uses of a file are equal.
_LENGTH_BITS = 44
_USES = 1 << 19


class Segment:
    """A use of memory: a descriptor that is closed with the last reference."""

    __slots__ = ("fd",)

    def __init__(self, fd):
        self.fd = fd

    def __del__(self):
        os.close(self.fd)


class _File:
    """Memory that only this process writes to."""

    def __init__(self, size):
        self.size, self.map, self.uses, self.used = size, None, 0, 0.0
        made = os.memfd_create("golaunch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(made, size)
            # a mapping must stay valid as a whole
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self.fd = _opened_again(made)  # the kernel does not count the first description for a lease
        finally:
            os.close(made)

    def __del__(self):
        if self.map is not None:
            self.map.close()
        if hasattr(self, "fd"):
            os.close(self.fd)

    def free(self):
        """Whether no other process has the file."""
        # A process that opens the file at this moment, such as a tool that reads /proc, makes the
        # kernel signal that a lease is in its way. The default, SIGIO, would end this process;
        # SIGURG does nothing.
        fcntl.fcntl(self.fd, _F_SETSIG, _signal.SIGURG)
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return False
            raise
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def lend(self, length):
        """Begins a use of the file's first bytes."""
        segment = Segment(_opened_again(self.fd))
        self.uses += 1
        self.used = time.monotonic()
        os.lseek(segment.fd, self.uses << _LENGTH_BITS | length, os.SEEK_SET)
        return segment

    def write(self, at, view):
        if self.map is None and self.uses > 1:  # not for a single use: mapping fresh pages costs more than it saves
            try:
                self.map = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | _MAP_POPULATE)
            except OSError:
                pass  # a limit on the memory that this process may map or lock
        if self.map is None:
            write(self.fd, at, view)
            return
        for begin in range(0, len(view), _AT_ONCE):
            part = view[begin:begin + _AT_ONCE]
            self.map[at + begin:at + begin + len(part)] = part


class Pool:
    """The memory that this process has written and keeps, the last used at the end.

    No thread waits for this memory, since a signal's handler may run in the thread that holds it: a
    thread that finds it held does without it.
    """

    def __init__(self):
        self.files, self._lock = [], _thread.allocate_lock()
        self._works = self._most = None  # unknown before the first file is made
        self._due = 0.0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self):
        """In a child after a fork: memory to which both processes could write belongs to the
        parent.
        """
        self.files, self._lock = [], _thread.allocate_lock()

    def share(self, parts, align):
        """A segment with the parts in order, each at a multiple of align."""
        views = [memoryview(p).cast("B") for p in parts]
        segment, fill = self.lend(sum(_up(len(v), align) for v in views))
        at = 0
        for v in views:
            fill(at, v)
            at += _up(len(v), align)
        return segment

    def lend(self, length):
        """A segment of that many bytes, and a function that writes to it: (at, view)."""
        file, segment = self._take(length)
        if file is not None:
            return segment, file.write
        os.ftruncate(segment.fd, length)
        return segment, functools.partial(write, segment.fd)

    def _take(self, length):
        dropped = []  # the kernel takes a while to free memory, in which other threads may use the pool
        if self._works is not False and self._lock.acquire(False):
            try:
                if self._most is None:
                    self._most = _most()
                if length <= self._most:
                    return self._kept(length, dropped)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EFBIG):
                    raise
                self._works, dropped, self.files = False, self.files, []  # no /proc, or a kernel without leases
            finally:
                self._lock.release()
        return None, Segment(os.memfd_create("golaunch", os.MFD_CLOEXEC))

    def _kept(self, length, dropped):
        fits = [f for f in self.files if length <= f.size <= max(2 * length, mmap.PAGESIZE) and f.uses + 1 < _USES]
        file = next((f for f in fits[:_LOOKED_AT] if f.free()), None)
        if file is None:
            file = _File(_up(length, max(mmap.PAGESIZE, 1 << max(0, length.bit_length() - 4))))  # the next one may be a little larger
        else:
            self.files.remove(file)
        segment = file.lend(length)
        if self._works is None:
            lent, alone = file.free(), _File(mmap.PAGESIZE).free()
            if lent or not alone:
                raise OSError(errno.ENOTSUP, "leases do not tell who has a file in memory")
            self._works = True
        self.files.append(file)
        # A file that other processes still have belongs to them from now on.
        while len(self.files) > _FILES or sum(f.size for f in self.files) > self._most and len(self.files) > 1:
            dropped.append(self.files.pop(0))
        return file, segment

    def tidy(self):
        """Gives back memory that was unused for a while, if it is time to check."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + AGE
            self._drop(now - AGE)

    def clear(self):
        """Gives all memory back."""
        self._drop(None)

    def _drop(self, before):
        if not self._lock.acquire(False):
            return
        files = self.files
        try:
            self.files = [] if before is None else [f for f in files if f.used > before or not f.free()]
        except OSError:
            self._works, self.files = False, []  # this process belongs to another user now
        finally:
            self._lock.release()


def _most():
    """The upper bound for the memory that a process keeps."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/self/cgroup") as f:
            group = next(line[3:].strip() for line in f if line.startswith("0::"))
        while True:
            try:
                with open(f"/sys/fs/cgroup{group}/memory.max") as f:
                    memory = min(memory, int(f.read()))
            except (OSError, ValueError):  # the file is missing, or has max
                pass
            if group in ("", "/"):
                break
            group = os.path.dirname(group)
    except (OSError, StopIteration):
        pass
    try:
        workers = int(os.environ.get("LOCAL_WORLD_SIZE", "2"))
    except ValueError:
        workers = 2
    return min(_MOST, memory // 4 // max(1, workers))


def _opened_again(fd):
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def write(fd, at, view):
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:done + (1 << 30)], at + done)


def _up(n, to):
    return -(-n // to) * to


POOL = Pool()
