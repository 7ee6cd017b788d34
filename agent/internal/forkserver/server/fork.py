# --- Fork


def fork(fds, kernel, before):
    """Makes a fork with the given connection and perhaps cgroup. Returns True only in the fork."""
    global socket
    kernel.told = fds[0]
    why = unsafe(before, fds, memory=False)
    if why:
        kernel.tell("unsafe", why)
        return False
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    libc.fflush(None)
    try:
        pid = kernel.clone(fds[1] if len(fds) > 1 else None)
    except OSError as e:
        kernel.tell("failed", e.strerror)
        return False
    if pid:
        return False  # the child answers
    socket.close()
    socket = _socket.socket(fileno=fds.pop(0))
    while fds:
        os.close(fds.pop())
    return True


def become(kernel, wrapper, variables, effects, generators):
    """Waits for an order, and makes this fork like a process that fork and exec would have made for
    the order, just before the first line of its program. Returns the order."""
    order = Order(*receive())
    wrapper.wrap(order)
    script = os.path.join(os.fsdecode(order.dir), os.fsdecode(order.program))
    order.folder = os.path.dirname(os.path.realpath(script)) if order.kind == "script" else os.path.realpath(os.fsdecode(order.dir) or ".")
    why = variables.differs(order.environ) or bound_elsewhere(order, effects) or shadowed(order.folder)
    if not why and order.kind == "script" and not os.access(script, os.R_OK):
        why = "%s cannot be read" % script
    if why:
        send("unsafe", why)
        os._exit(1)
    try:
        kernel.show(b"\0".join(order.orig_argv + [b""]), b"\0".join(order.env + [b""]))
        take(order, kernel, variables)
        reseed(generators)
    except BaseException as e:
        send("failed", "%s: %s" % (type(e).__name__, e))
        os._exit(1)
    send("ready")
    if socket.recv(1) == b"":  # golaunch has died or given up
        os._exit(1)
    socket.close()
    return order


def take(order, kernel, variables):
    """Applies the settings of an order to this process."""
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    if order.memory:
        kernel.prefer(int(order.memory))
    if order.dir:
        os.chdir(order.dir)
    kinds = [kind(fd) for fd in (0, 1, 2)]
    for at, fd in enumerate(order.fds):
        os.dup2(fd, at)
        os.close(fd)
    os.environb.clear()
    os.environb.update(order.environ)
    variables.change()
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
    """Makes a standard stream anew for a file of another kind, as CPython does at its start
    (create_stdio in pylifecycle.c)."""
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
