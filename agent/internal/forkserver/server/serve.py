def serve():
    """Imports the modules, reports that, and forks. Returns only in forks, each with its order."""
    if sys.implementation.name != "cpython" or not (3, 9) <= sys.version_info[:2] <= (3, 14):
        send("failed", "%s %d.%d is not CPython 3.9 to 3.14" % (sys.implementation.name, *sys.version_info[:2]))
        os._exit(1)
    if "t" in sys.abiflags:
        send("failed", "%s is a free-threaded CPython, which golaunch cannot fork: use the build with the GIL" % sys.executable)
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
    before = descriptors()  # a wrapper of the interpreter may have left descriptors open
    send("hello")
    given = receive()[0]
    n = int(given[1])
    names, wrapper = [os.fsdecode(name) for name in given[2 : 2 + n]], Wrapper(given[2 + n :])
    variables, effects, stamps, generators, began = Variables(), SideEffects(), Stamps(), [], time.monotonic()
    spent = []
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # faster; the modules may still enable or disable the collector
    error, culprit, why = "", "", unsafe(before)
    if names and not why:
        with Seeded() as seeded, stamps, effects:
            error, culprit, why = load(names, variables, effects, before, given[0] != b"", spent)
        generators = seeded.found
    if gc.get_threshold()[0] == 0:
        gc.set_threshold(*thresholds)
    gc.collect()
    if names and not why:
        found, unfit = entropy()
        generators, why = generators + found, unfit
    gc.freeze()  # the ranks' collectors then do not write to shared memory, which would copy it
    send("ready", "%.6f" % (time.monotonic() - began), error, culprit, why, slowest(spent), *stamps.words())
    while True:
        fds = receive()[1]
        try:
            if fork(fds, kernel, before):
                order = become(kernel, wrapper, variables, effects, generators)
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
    gc.unfreeze()  # the interpreter collects all objects at its end
    if order.record and os.getpid() == rank:
        record(order.record, order.folder)
