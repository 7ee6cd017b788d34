# --- What is not safe

# These character devices (major, minor) have no state: null, zero, full, random, urandom.
WITHOUT_STATE = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)}


def descriptors():
    """Returns the descriptors of this process and their files."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.fstat(int(fd))
        except OSError:
            pass  # the descriptor was that of the listing itself
    return found


def shared(fd, st, before):
    """Reports whether forked processes would share what each should have for itself: an offset,
    locks or a connection. Files that were open before the imports do not count, because ranks share
    these even if they are not forked."""
    was = before.get(fd)
    if was is not None and (was.st_dev, was.st_ino, was.st_rdev) == (st.st_dev, st.st_ino, st.st_rdev):
        return False
    if stat.S_ISCHR(st.st_mode) and (os.major(st.st_rdev), os.minor(st.st_rdev)) in WITHOUT_STATE:
        return False
    try:
        with open("/proc/self/fdinfo/%d" % fd) as info:
            flags = next(line.split()[1] for line in info if line.startswith("flags:"))
    except OSError:
        return False  # the descriptor is closed
    return not int(flags, 8) & os.O_PATH


def unsafe(before, but=(), memory=True):
    """Returns why this process cannot be forked, or "". It ignores the descriptors in but, which
    came with an order. With memory, it also checks the memory, which takes a millisecond."""
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        return "%d threads run in it" % len(threads)
    for fd, st in descriptors().items():
        if fd not in but and shared(fd, st, before):
            return "it has %s open" % os.readlink("/proc/self/fd/%d" % fd)
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
    """Ends the threads of libraries, such as OpenBLAS, that end them before a fork (pthread_atfork)
    and start them again when needed. To this end it forks a process that exits at once. It waits,
    because a thread is listed for a moment after it has ended."""
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
    """Asks the driver, whose functions fail with CUDA_ERROR_NOT_INITIALIZED, 3, before cuInit."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        context = ctypes.c_void_p()
        return driver.cuCtxGetCurrent(ctypes.byref(context)) != 3
    except (OSError, AttributeError):
        return False


def shadowed(folder):
    """Returns which module in the program's folder shadows a module that was imported from
    elsewhere, or ""."""
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


# Libraries that bind their threads read these variables, and the CPUs, when they are loaded.
PLACES = (b"OMP_PROC_BIND", b"OMP_PLACES", b"GOMP_CPU_AFFINITY", b"KMP_AFFINITY", b"KMP_HW_SUBSET")


def bound_elsewhere(order, effects):
    """Returns why a rank that is bound to CPUs of its own cannot be forked, or ""."""
    if not order.cpus or set(order.cpus) == os.sched_getaffinity(0):
        return ""
    if effects.cpus:
        return "%s asks for its CPUs when it is imported, and the ranks are bound to others" % effects.cpus
    for name in PLACES:
        if order.environ.get(name, b"false").lower() not in (b"", b"false"):
            return "%s binds threads to the CPUs that they had when libraries were loaded, and the ranks are bound to others" % os.fsdecode(name)
    return ""
