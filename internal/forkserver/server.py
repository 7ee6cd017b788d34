# The fork server of golaunch: it imports modules once, and forks each rank from what it has imported.
#
# It runs as `python FLAGS -c STUB WHAT` with the flags of the ranks' own interpreter. Its standard input is a socket to golaunch,
# from which STUB reads this text. A message is its length in 4 bytes, big-endian, and words that end in NUL. The server says what it
# has imported; each order after that is for one rank, and is answered with the number of the process or why there is none.
#
# A rank is made by clone3 with CLONE_PARENT: it is a child of golaunch as if golaunch had forked it, and what supervises processes
# need not know of this server. It answers for itself, twice: with its number, while it is in the session of this server, where golaunch
# finds what it has not heard of; and when it has left that, as golaunch then lets it, with the environment that marks it as the rank.
#
# Nothing here may leave a trace in a rank: this text has a namespace of its own, and the stack below a rank's program has two frames.

import _collections_abc
import _socket
import ctypes
import errno
import gc
import os
import signal
import stat
import sys
import time
from itertools import compress

__file__ = "<golaunch>"
at_start = frozenset(sys.modules)
open_at_start = frozenset(os.listdir("/proc/self/fd"))  # what a wrapper of the interpreter has left open
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
TORCH_SEED = 67280421310721  # default_rng_seed_val of c10/core/GeneratorImpl.h: before 2.15 torch had the same numbers in every process
MAX_MESSAGE = 64 << 20
MARK = b"RANKGUARD_"  # by a variable of such a name golaunch finds what descends from a process: this server has one, each rank another


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
    """Returns the next order and its descriptors, or ends with golaunch."""
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


class Order:
    """What a rank is to be: the command line behind the interpreter's flags, and what the kernel keeps of a process."""

    def __init__(self, words, fds):
        self.fds = fds
        (self.kind, self.program, self.dir, self.cpus, self.memory, n, *rest) = words
        self.kind = self.kind.decode()
        self.cpus = [int(c) for c in self.cpus.split()]
        n, m = (int(x) for x in n.split())
        self.orig_argv, self.argv, self.env = rest[:n], rest[n : n + m], rest[n + m :]


class Wrapper:
    """Knows what a script that has started this interpreter in the end, as pyenv's do, has changed on the way."""

    def __init__(self, given):
        given = pairs(given)
        self.changed = {name: value for name, value in pairs(words_of("environ")).items() if given.get(name) != value and not name.startswith(MARK)}
        self.removed = given.keys() - pairs(words_of("environ")).keys()
        # What CPython sets for itself: LC_CTYPE, in the C locale (PEP 538).
        self.own = {name: value for name, value in os.environb.items() if name not in pairs(words_of("environ"))}
        self.name = words_of("cmdline")[0]

    def wrap(self, order):
        order.orig_argv[0] = self.name
        if self.changed or self.removed:
            env = pairs(order.env)
            env.update(self.changed)
            order.env = [name + b"=" + value for name, value in env.items() if name not in self.removed]
        order.environ = {**self.own, **pairs(order.env)}


def words_of(name):
    with open("/proc/self/" + name, "rb") as f:
        return f.read().split(b"\0")[:-1]


def pairs(env):
    """Returns an environment as a dict; of two variables of one name the first counts."""
    found = {}
    for word in env:
        name, equals, value = word.partition(b"=")
        if equals and name:
            found.setdefault(name, value)
    return found


# --- What is not safe

NOT_SHARED = ("socket:", "pipe:", "anon_inode:", "/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/infiniband")


def unsafe(but=(), memory=True):
    """Says why this process cannot be forked, if it cannot. Descriptors that came with an order are not its own. To look through its memory
    as well takes a millisecond."""
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        return "%d threads run in it" % len(threads)
    for fd in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if fd not in open_at_start and int(fd) != socket.fileno() and int(fd) not in but and what.startswith(NOT_SHARED):
            return "it has %s open" % what
    cuda = False
    with open("/proc/self/maps", "rb") as maps:
        for line in maps if memory else ():
            if line[line.index(b" ") + 1 :].startswith(b"rw-s"):
                return "it shares memory: %s" % os.fsdecode(line.split(None, 5)[-1].strip())
            cuda = cuda or b"/libcuda.so" in line
    if cuda and cuda_is_initialized():
        return "CUDA is initialized in it"
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as children:
            if children.read().strip():
                return "a process that it has started runs"
    except OSError:
        pass
    return ""


def calm():
    """Ends the threads that libraries end before a fork by themselves (pthread_atfork), and start again when they need them, as OpenBLAS does: by a
    fork, whose process does nothing. A thread is gone a moment after it has ended."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    pid = libc.fork()
    if pid == 0:
        libc._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    for _ in range(20):
        if len(os.listdir("/proc/self/task")) == 1:
            break
        time.sleep(0.001)


def cuda_is_initialized():
    """Asks the driver: before cuInit each of its functions fails with CUDA_ERROR_NOT_INITIALIZED, 3."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        context = ctypes.c_void_p()
        return driver.cuCtxGetCurrent(ctypes.byref(context)) != 3
    except (OSError, AttributeError):
        return False


# Libraries read variables of these names when they are loaded; those that Python code asks for are seen, see Asked.
READ_BY_LIBRARIES = (
    b"LD_", b"GLIBC_", b"MALLOC_", b"PYTHON", b"OMP_", b"GOMP_", b"KMP_", b"MKL_", b"OPENBLAS_", b"GOTO_", b"BLIS_", b"LC_", b"LANG",
    b"NUMEXPR_", b"VECLIB_", b"ATEN_", b"DNNL_", b"ONEDNN_", b"TZ", b"FSSPEC_", b"NUMBA_", b"TQDM_",
)


class Asked:
    """Knows which variables Python code has asked for while modules were imported, and where, and which it has changed. A loop over the items looks
    for names of its own, as tqdm and numba do, and asks for nothing else."""

    def __init__(self):
        self.at_start = dict(os.environb)
        self.names, self.of_module, self.listed, self.changes = {}, {}, {}, {}

    def __enter__(self):
        self.plain, self.plain_iter = os._Environ.__getitem__, os._Environ.__iter__

        def getitem(environ, key):
            name, module = os.fsencode(key), caller()
            if sys._getframe(1).f_code not in LOOPS and module not in LOOK_FOR_THEIR_OWN:
                self.names.setdefault(name, module)
                self.of_module.setdefault(module, set()).add(name)
            return self.plain(environ, key)

        def iterate(environ):
            self.listed.setdefault(caller(), set(environ._data))
            return self.plain_iter(environ)

        os._Environ.__getitem__, os._Environ.__iter__ = getitem, iterate

    def __exit__(self, *_):
        os._Environ.__getitem__, os._Environ.__iter__ = self.plain, self.plain_iter
        now = dict(os.environb)
        self.changes = {name: now.get(name) for name in now.keys() | self.at_start.keys() if now.get(name) != self.at_start.get(name)}

    def copied(self):
        """Says which module has asked for all variables, if there is one: its copy lacks those that only ranks have."""
        for module, names in self.listed.items():
            if names and names <= self.of_module.get(module, set()) and copy_of(names):
                return "%s has a copy of all variables, without those of a rank" % module
        return ""

    def differs(self, env):
        """Says which variable would have been another for a rank when it was read, if there is one."""
        for name in env.keys() | self.at_start.keys():
            if env.get(name) != self.at_start.get(name):
                if name in self.names and not name.startswith(MARK):
                    return "%s asks for %s when it is imported" % (self.names[name], os.fsdecode(name))
                if name.startswith(READ_BY_LIBRARIES):
                    return "%s is read when libraries are loaded, and is another here" % os.fsdecode(name)
        return ""

    def change(self):
        """Changes the variables of a rank as the modules have done."""
        for name, value in self.changes.items():
            if value is None:
                os.environb.pop(name, None)
            else:
                os.environb[name] = value


LOOPS = {_collections_abc.ItemsView.__iter__.__code__, _collections_abc.ValuesView.__iter__.__code__}
LOOK_FOR_THEIR_OWN = {"fsspec.config", "ctypes.util", "subprocess"}  # in a copy; the latter two have it for a child


def copy_of(names):
    """Says whether a dict has variables of all these names, which may be there no more."""
    names = {os.fsdecode(name) for name in names}
    return any(issubclass(type(o), dict) and len(o) >= len(names) and names <= o.keys() for o in gc.get_referents(*gc.get_objects()))


def caller():
    """Names the module that has called what of os and collections.abc has called this."""
    frame = sys._getframe(2)
    while frame and frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "?") if frame else "?"


def shadowed(folder):
    """Says which module would have been found in the folder of the program instead of where it was imported from."""
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return ""
    for entry in entries:
        name, dot, suffix = entry.partition(".")
        if name in sys.modules and name not in at_start and (not dot or suffix == "py" or suffix.endswith("so")):
            path = os.path.join(folder or ".", entry)
            spec = getattr(sys.modules[name], "__spec__", None)
            if spec is None or spec.origin in ("built-in", "frozen") or inside(spec, path):
                continue
            if dot or os.path.exists(os.path.join(path, "__init__.py")):
                return "%s shadows the module that was imported" % path
    return ""


def inside(spec, path):
    return os.path.realpath(spec.origin or "").startswith(os.path.realpath(path))


# --- Import


def load(names, asked, lenient):
    """Imports modules; returns a traceback of the first that fails, unless that is no matter, or which one is why this process cannot be
    forked, and why."""
    for name in names:
        if name in sys.modules:
            continue
        try:
            with asked:
                __import__(name)
        except BaseException as e:
            if lenient:
                continue
            import traceback

            tb = e.__traceback__.tb_next if e.__traceback__ else None
            return "".join(traceback.format_exception(type(e), e, tb)), "", ""
        if len(os.listdir("/proc/self/task")) > 1:
            calm()
        why = unsafe(memory=not lenient) or asked.copied()
        if why:
            return "", name, "after import %s %s" % (name, why)
    return "", "", unsafe()


def record(path, folder):
    """Notes which modules a program has loaded, but for those in its own folder, which it may be working on."""
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name in at_start or getattr(spec, "name", None) != name or getattr(module, "__name__", None) != name:
            continue
        origin = spec.origin if isinstance(spec.origin, str) else ""
        own = folder and os.path.realpath(origin).startswith(os.path.join(folder, ""))
        if not own or "site-packages" in origin or "dist-packages" in origin:
            names.append(name)
    new = "%s.%d" % (path, os.getpid())
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(new, "w", encoding="utf-8") as f:
            f.write("".join(name + "\n" for name in names[:MAX_NAMES]))
        os.replace(new, path)
    except (OSError, UnicodeError):
        pass  # the next run imports for itself, as this one did


def origins():
    """Yields the files that all modules came from."""
    seen = set()
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        for path in (getattr(module, "__file__", None), getattr(spec, "origin", None)):
            if isinstance(path, str) and os.path.isabs(path) and path not in seen:
                seen.add(path)
                yield path
    yield os.path.realpath(sys.executable)


def stamps():
    for path in origins():
        try:
            st = os.stat(path)
        except OSError:
            continue
        yield path
        yield "%d %d %d" % (st.st_size, st.st_mtime_ns, st.st_ino)


def entropy():
    """Returns what NumPy and torch draw random numbers from and was seeded by chance, each of which a fork would double, and why it cannot be seeded
    anew, if it cannot. It sees nothing that the collector does not look at any more (gc.freeze)."""
    kinds = set()
    for name, of in ("numpy.random", "BitGenerator"), ("numpy.random", "SeedSequence"), ("torch", "Generator"):
        new = [getattr(sys.modules.get(name), of, None)]
        while new:
            kind = new.pop()
            if isinstance(kind, type) and kind not in kinds:
                kinds.add(kind)
                new += kind.__subclasses__()
    if not kinds:
        return [], ""
    # Torch's generators, and what holds nothing but them, are not the collector's own: they are found by what refers to them.
    found, seen, look = {}, set(), [o for o in gc.get_objects() if type(o) not in REFERS_TO_NONE]
    while look:
        referents = gc.get_referents(*look)
        found.update((id(o), o) for o in compress(referents, map(kinds.__contains__, map(type, referents))))
        holders = {id(o): o for o in compress(referents, map((dict, tuple).__contains__, map(type, referents))) if not gc.is_tracked(o)}
        look = [o for at, o in holders.items() if o and at not in seen]
        seen.update(holders)
    chance = [o for o in found.values() if by_chance(o)]
    for o in chance:
        try:
            fresh(o)
        except Exception as e:
            return [], "a random generator, %s, cannot be seeded anew: %s" % (type(o).__name__, e)
    return chance, ""


# What a method of one of C's types, a slot of it and an attribute of it are.
REFERS_TO_NONE = {type(str.join), type(object.__init__), type(type.__dict__["__dict__"])}


def by_chance(o):
    """Chance has 128 bits in NumPy, and 53 or 64 in torch, which are never so few that they could be somebody's constant."""
    if hasattr(o, "initial_seed"):
        return o.initial_seed() >> 32 and o.initial_seed() != TORCH_SEED
    seeds = o if hasattr(o, "spawn_key") else getattr(o, "seed_seq", getattr(o, "_seed_seq", None))  # the latter before NumPy 1.25
    entropy = getattr(seeds, "entropy", 0)
    return isinstance(entropy, int) and entropy >> 96


class Seeded:
    """Knows which generators of the module random were seeded by chance while modules were imported."""

    def __enter__(self):
        import random

        self.random, self.plain, self.found = random.Random, random.Random.seed, []

        def seed(generator, a=None, version=2):
            if a is None:
                self.found.append(generator)
            elif generator in self.found:
                self.found.remove(generator)
            return self.plain(generator, a, version)

        random.Random.seed = seed
        return self

    def __exit__(self, *_):
        self.random.seed = self.plain


def reseed(chance):
    while chance:
        generator = chance.pop()
        if generator is getattr(sys.modules.get("torch"), "default_generator", None):
            sys.modules["torch"].seed()  # those of GPUs too, which are not there yet
        elif hasattr(generator, "seed"):  # of the module random, or torch's
            generator.seed()
        else:
            generator.__setstate__(fresh(generator))


def fresh(o):
    """Returns the state of another of NumPy's generators or seeds of the same type; None for what seeds itself."""
    if hasattr(o, "seed"):
        return None
    return type(o)().__reduce__()[2] if hasattr(o, "spawn_key") else type(o)().__getstate__()


# --- Fork


class CloneArgs(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup".split()
        )
    ]


def number_of_thread(cleared):
    """Returns where the C library keeps the number of this thread: what the kernel is to clear when the thread ends, or since glibc 2.43 where
    a description for debuggers says (libthread_db)."""
    places = [cleared]
    try:
        libc.pthread_self.restype = ctypes.c_void_p
        places.append(libc.pthread_self() + (ctypes.c_uint32 * 3).in_dll(libc, "_thread_db_pthread_tid")[2])  # of bits, elements, bytes before
    except ValueError:
        pass  # glibc before 2.34 has it in another library
    for place in places:
        if place and ctypes.c_int.from_address(place).value == os.getpid():
            return place
    raise OSError(errno.ENOSYS, "this C library keeps the number of a thread elsewhere")


class Kernel:
    """What a child must be told, or the kernel of it, that fork(2) of the C library would have done."""

    def __init__(self):
        self.socket = socket.fileno()
        get_robust_list, self.set_robust_list, self.set_mempolicy, self.set_tid_address = SYS_OF[os.uname().machine]
        cleared = ctypes.c_void_p()
        prctl(PR_GET_TID_ADDRESS, ctypes.byref(cleared))
        self.cleared, self.tid = cleared.value, number_of_thread(cleared.value)
        self.robust, self.robust_size = ctypes.c_void_p(), ctypes.c_size_t()
        syscalls(get_robust_list, 0, ctypes.byref(self.robust), ctypes.byref(self.robust_size))
        libc.sbrk.restype = libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self.map = self.layout()
        prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(self.map), ctypes.sizeof(self.map), 0)  # is it allowed?

    def layout(self):
        """Returns where the memory of this process has what."""
        with open("/proc/self/stat", "rb") as f:
            field = [0, 0, 0] + f.read().rpartition(b")")[2].split()
        where = {
            "start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47, "start_stack": 28,
            "arg_start": 48, "arg_end": 49, "env_start": 50, "env_end": 51,
        }  # fmt: skip
        return MemoryMap(brk=libc.sbrk(0), exe_fd=0xFFFFFFFF, **{name: int(field[n]) for name, n in where.items()})

    def clone(self, cgroup, go, args, env):
        """Forks; returns 0 in the child, whose /proc/PID/cmdline and environ are those of a program that was started with them, of which each
        word ends in NUL."""
        size = len(args) + len(env)
        page = libc.mmap(None, size + 1, 3, 0x22, -1, 0)  # readable and writable, private, of no file
        if page in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        try:
            ctypes.memmove(page, args + env, size)
            m = self.map
            m.arg_start, m.arg_end, m.env_start, m.env_end = page, page + len(args), page + len(args), page + size
            m.brk = libc.sbrk(0)
            pid = self.clone3(cgroup)
            if pid == 0:
                page = None
                try:
                    self.announce(go)
                except BaseException:  # this process must not go on as a second server
                    libc._exit(1)
                python.PyOS_AfterFork_Child()
            return pid
        finally:
            if page:
                libc.munmap(page, size + 1)

    def clone3(self, cgroup):
        args = CloneArgs(flags=CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, child_tid=self.tid)
        if cgroup is not None:
            args.flags, args.cgroup = args.flags | CLONE_INTO_CGROUP, cgroup
        size = ctypes.sizeof(args)
        python.PyOS_BeforeFork()
        pid = syscall(ctypes.c_long(SYS_CLONE3), ctypes.byref(args), ctypes.c_size_t(size))
        if pid != 0:
            number = ctypes.get_errno()
            python.PyOS_AfterFork_Parent()
            if pid < 0:
                raise OSError(number, os.strerror(number))
        return pid

    def announce(self, go):
        """The child answers as soon as golaunch may know of it, which signals sessions: what else a fork does in Python takes longer."""
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        self.answer("pid", libc.getpid())
        byte = ctypes.create_string_buffer(1)
        while (n := libc.read(go, byte, 1)) < 0 and ctypes.get_errno() == errno.EINTR:
            pass
        if n != 1:  # golaunch has died, or does not wait for this process any more
            libc._exit(1)
        if libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), ctypes.byref(self.map), ctypes.c_ulong(ctypes.sizeof(self.map)), 0) != 0:
            self.answer("failed", os.strerror(ctypes.get_errno()))
            libc._exit(1)
        libc.setsid()
        self.answer("session")
        if self.cleared != self.tid:
            syscall(ctypes.c_long(self.set_tid_address), ctypes.c_void_p(self.cleared))
        syscall(ctypes.c_long(self.set_robust_list), self.robust, self.robust_size)

    def answer(self, *words):
        answer = message(*words)
        libc.send(self.socket, answer, ctypes.c_size_t(len(answer)), 0)

    def prefer(self, node):
        """Prefers the memory of a NUMA node."""
        mask = (ctypes.c_ulong * 64)()
        mask[node // 64] = 1 << node % 64
        syscalls(self.set_mempolicy, MPOL_PREFERRED, mask, 64 * 64)


class MemoryMap(ctypes.Structure):
    """struct prctl_mm_map of <linux/prctl.h>."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "start_code end_code start_data end_data start_brk brk start_stack arg_start arg_end env_start env_end auxv".split()
        )
    ] + [("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_uint32)]


def become(order, kernel, asked):
    """Makes the child what a process that golaunch had forked and exec'd would be, up to its first line."""
    stdin, stdout, stderr, go = order.fds[:4]
    if os.read(go, 1) == b"":  # golaunch has died, or does not wait for this process any more
        os._exit(1)
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    if order.memory:
        kernel.prefer(int(order.memory))
    if order.dir:
        os.chdir(order.dir)
    kinds = [kind(fd) for fd in (0, 1, 2)]
    for fd, at in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, at)
    while order.fds:
        os.close(order.fds.pop())
    socket.close()
    os.environb.clear()
    os.environb.update(order.environ)
    asked.change()
    for at, name in enumerate(("stdin", "stdout", "stderr")):
        if kind(at) != kinds[at]:
            reopen(at, name)
    sys.argv[:] = [os.fsdecode(a) for a in order.argv]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [os.fsdecode(a) for a in order.orig_argv]
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.main_thread()._set_native_id()
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        multiprocessing.current_process().authkey = os.urandom(32)


def kind(fd):
    return stat.S_IFMT(os.fstat(fd).st_mode), os.isatty(fd)


def reopen(fd, name):
    """Makes a standard stream for another kind of file as CPython does (create_stdio of pylifecycle.c)."""
    import io

    old = getattr(sys, name)
    if old is None:
        return
    mode, unbuffered = ("r" if fd == 0 else "w"), old.write_through
    buffer = io.open(fd, mode + "b", 0 if unbuffered and fd > 0 else -1, closefd=False)
    raw = getattr(buffer, "raw", buffer)
    raw.name = "<%s>" % name
    lines = not unbuffered and (fd == 2 or raw.isatty())
    stream = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line_buffering=lines, write_through=unbuffered)
    stream.mode = mode
    setattr(sys, name, stream)
    setattr(sys, "__%s__" % name, stream)


def fork(order, kernel, asked, chance):
    """Makes one rank. Returns True in the rank, which is ready for its program."""
    cgroup = order.fds[4] if len(order.fds) > 4 else None
    script = os.path.join(os.fsdecode(order.dir), os.fsdecode(order.program))
    folder = os.path.dirname(os.path.realpath(script)) if order.kind == "script" else os.path.realpath(os.fsdecode(order.dir) or ".")
    order.folder = folder
    why = unsafe(order.fds, memory=False) or asked.differs(order.environ) or shadowed(folder)
    if not why and order.kind == "script" and not os.access(script, os.R_OK):
        why = "%s cannot be read" % script
    if why:
        send("unsafe", why)
        return False
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    libc.fflush(None)
    try:
        pid = kernel.clone(cgroup, order.fds[3], b"\0".join(order.orig_argv + [b""]), b"\0".join(order.env + [b""]))
    except OSError as e:
        send("failed", e.strerror)
        return False
    if pid:
        return False  # the child answers
    try:
        become(order, kernel, asked)
        reseed(chance)
    except BaseException as e:
        os.write(2, os.fsencode("golaunch: the fork server cannot make this rank: %s: %s\n" % (type(e).__name__, e)))
        os._exit(125)
    return True



# --- The program


def prepare(order):
    """Makes sys.path and __main__ those of a program, and returns it as a function and its arguments."""
    main = vars(sys.modules["__main__"])
    program = os.fsdecode(order.program)
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    forget()
    if order.kind == "command":
        if not safe:
            sys.path.insert(0, "")
        if sys.version_info >= (3, 14):
            import textwrap

            program = textwrap.dedent(program)
        code = compile(program, "<string>", "exec", dont_inherit=True)
        if sys.version_info >= (3, 13):
            remember(code, program)
        return exec, (code, main)
    if order.kind == "module":
        if not safe:
            sys.path.insert(0, os.getcwd())
        from runpy import _run_module_as_main

        return _run_module_as_main, (program,)
    file = program if os.path.isabs(program) else os.path.join(os.getcwd(), program)
    if importer(file) is not None:
        sys.path.insert(0, file)
        from runpy import _run_module_as_main

        return _run_module_as_main, ("__main__", False)
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(program)))
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    loader = (SourcelessFileLoader if file.endswith(".pyc") else SourceFileLoader)("__main__", file)
    main["__file__"], main["__cached__"], main["__loader__"] = file, None, loader
    if file.endswith(".pyc"):
        code = loader.get_code("__main__")
    else:
        with open(file, "rb") as f:
            text = f.read()
        code = compile(text, file, "exec", dont_inherit=True)
    return exec, (code, main)


def importer(file):
    """Returns what imports from a directory or an archive, and None for a script."""
    for hook in sys.path_hooks:
        try:
            return hook(file)
        except ImportError:
            continue
    return None


def forget():
    """Forgets the text of this server's own start, which CPython 3.13 and later show in tracebacks."""
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        linecache.cache.pop("<string>", None)
        getattr(linecache, "_interactive_cache", {}).clear()


def remember(code, program):
    """Has tracebacks show the text of a command, as CPython 3.13 and later do."""
    import linecache

    by_code = hasattr(linecache, "_interactive_cache")
    linecache._register_code(code if by_code else "<string>", program, "<string>")


def trim():
    """Hides the frames of this server from whatever handles an exception that nobody caught."""
    hook = getattr(sys, "excepthook", None)

    def shown(kind, value, tb):
        sys.excepthook = hook
        tb = tb and tb.tb_next  # the stub
        while tb and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        if value is not None:
            value.__traceback__ = tb
        sys.last_traceback = tb
        hook(kind, value, tb)

    if hook is not None:
        sys.excepthook = shown


def serve():
    """Imports, tells of it, and makes ranks; returns in each with its order."""
    if sys.implementation.name != "cpython" or not (3, 9) <= sys.version_info[:2] <= (3, 14):
        send("failed", "%s %d.%d is not CPython 3.9 to 3.14" % (sys.implementation.name, *sys.version_info[:2]))
        os._exit(1)
    if "t" in sys.abiflags:
        send("failed", "%s is a free-threaded CPython, of which golaunch forks nothing: use the build with the GIL" % sys.executable)
        os._exit(1)
    try:
        kernel = Kernel()
    except (OSError, KeyError, AttributeError) as e:
        send("failed", "this kernel or C library cannot do it: %s" % e)
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    reopen(0, "stdin")
    if sys.path[:1] == [""]:
        del sys.path[0]
    send("hello")
    given = receive()[0]
    n = int(given[1])
    names, wrapper = [os.fsdecode(name) for name in given[2 : 2 + n]], Wrapper(given[2 + n :])
    asked, chance, began = Asked(), [], time.monotonic()
    gc.disable()
    error, culprit, why = "", "", unsafe()
    if names and not why:
        with Seeded() as seeded:
            error, culprit, why = load(names, asked, given[0] != b"")
        chance = seeded.found
    gc.enable()
    gc.collect()
    if names and not why:
        found, unfit = entropy()
        chance, why = chance + found, unfit
    gc.freeze()  # what was imported stays shared: no rank's collector touches it
    send("ready", "%.6f" % (time.monotonic() - began), error, culprit, why, *stamps())
    while True:
        words, fds = receive()
        try:
            order = Order(words, fds)
            wrapper.wrap(order)
            if fork(order, kernel, asked, chance):
                order.record = order.environ.get(b"LOCAL_RANK") == b"0" and os.fsdecode(given[0])
                return order
        finally:
            for fd in fds:
                try:
                    os.close(fd)
                except OSError:
                    pass


order = serve()
rank = os.getpid()
try:
    program, arguments = prepare(order)
    program(*arguments)
except SystemExit:
    raise
except BaseException:
    trim()
    raise
finally:
    gc.unfreeze()  # the end of the interpreter collects all
    if order.record and os.getpid() == rank:
        record(order.record, order.folder)
