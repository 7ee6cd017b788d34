# The fork server of golaunch imports modules once, and forks each rank from itself.
#
# It runs as `python FLAGS -c STUB WHAT` with the flags of the ranks' own interpreter. Its standard
# input is a socket to golaunch, from which STUB reads this text. A message consists of its length
# in 4 bytes, big-endian, and of words that end in NUL. First the server reports its imports. Each
# later message to the server asks for one fork, and carries the fork's own connection to golaunch.
#
# clone3 with CLONE_PARENT makes a fork a child of golaunch, as if golaunch had forked it. The fork
# first reports its pid. It is then still in this server's session, so golaunch finds it there even
# if the report is lost. Once golaunch lets the fork continue, the fork makes a session of its own
# and reports that. It then waits, perhaps for hours, for the order that says which rank to become.
# It answers that it has become the rank, or why it must not become the rank. Last, it waits for
# permission to run.
#
# Nothing here may leave a trace in a rank. Therefore this text has a namespace of its own, and has
# only two frames on the stack below a rank's program. golaunch joins the files of this directory to
# one text, in a fixed order, so each file can use the names of the others.

import _collections_abc
import _socket
import atexit
import builtins
import ctypes
import errno
import gc
import io
import os
import signal
import stat
import sys
import time
from itertools import compress

__file__ = "<golaunch>"
for name in ("b", "os", "struct", "sys"):  # the stub's names, which the program must not see
    vars(sys.modules["__main__"]).pop(name, None)
at_start = frozenset(sys.modules)
socket = _socket.socket(fileno=os.dup(0))
libc = ctypes.PyDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long
python = ctypes.pythonapi
python.PyOS_AfterFork_Child.restype = python.PyOS_AfterFork_Parent.restype = python.PyOS_BeforeFork.restype = None

SYS_CLONE3 = 435
SYS_OF = {  # get_robust_list, set_robust_list, set_mempolicy, set_tid_address
    "x86_64": (274, 273, 238, 218),
    "aarch64": (100, 99, 237, 96),
}
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_INTO_CGROUP = 0x8000, 0x200000, 0x1000000, 0x200000000
PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_MM_MAP, PR_GET_TID_ADDRESS = 1, 35, 14, 40
MPOL_PREFERRED = 1
MAX_NAMES = 20000
TORCH_SEED = 67280421310721  # default_rng_seed_val in c10/core/GeneratorImpl.h, the same in every process before torch 2.15
MAX_MESSAGE = 64 << 20
MARK = b"RANKGUARD_"  # begins the name of a variable that marks descendants; it differs in ranks


def syscalls(*args):
    """Makes a system call, or raises OSError."""
    result = syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(*args):
    if libc.prctl(*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in args)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# --- Messages


def message(*words):
    body = b"".join(w if isinstance(w, bytes) else os.fsencode(str(w)).replace(b"\0", b"?") for w in words for w in (w, b"\0"))
    return len(body).to_bytes(4, "big") + body


def send(*words):
    socket.sendall(message(*words))


def receive():
    """Returns the next message and its descriptors. Exits when golaunch has ended."""
    head, ancillary, _, _ = socket.recvmsg(4, _socket.CMSG_SPACE(4 * 8), _socket.MSG_CMSG_CLOEXEC)
    fds = [
        int.from_bytes(data[i : i + 4], sys.byteorder)
        for level, kind, data in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for i in range(0, len(data) // 4 * 4, 4)
    ]
    body = exactly(int.from_bytes(head + exactly(4 - len(head)), "big"))
    return body.split(b"\0")[:-1], fds


def exactly(size):
    if size > MAX_MESSAGE:
        os._exit(1)
    parts = []
    while size:
        part = socket.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
