# --- Fork


class CloneArgs(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup".split()
        )
    ]


def number_of_thread(cleared):
    """Returns the address at which the C library keeps this thread's tid. The kernel clears the tid
    there when the thread ends. Since glibc 2.43 the address is another one, which the C library
    describes for libthread_db."""
    places = [cleared]
    try:
        libc.pthread_self.restype = ctypes.c_void_p
        places.append(libc.pthread_self() + (ctypes.c_uint32 * 3).in_dll(libc, "_thread_db_pthread_tid")[2])  # (bits, elements, offset in bytes)
    except ValueError:
        pass  # before glibc 2.34 the description was in another library
    for place in places:
        if place and ctypes.c_int.from_address(place).value == os.getpid():
            return place
    raise OSError(errno.ENOSYS, "this C library keeps the tid of a thread elsewhere")


class Kernel:
    """Forks by a system call, and does in the child what the C library's fork would have done."""

    def __init__(self):
        self.told = -1
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
        prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(self.map), ctypes.sizeof(self.map), 0)  # fails here if the kernel forbids it

    def layout(self):
        """Returns the layout of this process's memory."""
        with open("/proc/self/stat", "rb") as f:
            field = [0, 0, 0] + f.read().rpartition(b")")[2].split()
        where = {
            "start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47, "start_stack": 28,
            "arg_start": 48, "arg_end": 49, "env_start": 50, "env_end": 51,
        }  # fmt: skip
        return MemoryMap(brk=libc.sbrk(0), exe_fd=0xFFFFFFFF, **{name: int(field[n]) for name, n in where.items()})

    def clone(self, cgroup):
        """Forks. Returns 0 in the child once golaunch knows the child."""
        pid = self.clone3(cgroup)
        if pid == 0:
            try:
                self.announce()
            except BaseException:  # the child must not continue as a second server
                libc._exit(1)
            python.PyOS_AfterFork_Child()
        return pid

    def show(self, args, env):
        """Makes /proc/self/cmdline and environ show the given words. Each word ends in NUL."""
        size = len(args) + len(env)
        page = libc.mmap(None, size + 1, 3, 0x22, -1, 0)  # readable and writable, private, anonymous
        if page in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        ctypes.memmove(page, args + env, size)
        m = self.map
        m.arg_start, m.arg_end, m.env_start, m.env_end = page, page + len(args), page + len(args), page + size
        m.brk = libc.sbrk(0)
        prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(m), ctypes.sizeof(m), 0)

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

    def announce(self):
        """Reports the child to golaunch early: before Python completes the fork, which takes
        longer."""
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        self.tell("pid", libc.getpid())
        byte = ctypes.create_string_buffer(1)
        while (n := libc.read(self.told, byte, 1)) < 0 and ctypes.get_errno() == errno.EINTR:
            pass
        if n != 1:  # golaunch has died or given up
            libc._exit(1)
        libc.setsid()
        self.tell("session")
        if self.cleared != self.tid:
            syscall(ctypes.c_long(self.set_tid_address), ctypes.c_void_p(self.cleared))
        syscall(ctypes.c_long(self.set_robust_list), self.robust, self.robust_size)

    def tell(self, *words):
        """Tells golaunch about a fork, on the fork's connection."""
        text = message(*words)
        libc.send(self.told, text, ctypes.c_size_t(len(text)), _socket.MSG_NOSIGNAL)

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
