# --- Import


def load(names, variables, effects, before, lenient, spent):
    """Imports modules, and notes the time that each takes. Returns a traceback, a module and a
    reason. The traceback is of the first import that fails, unless lenient. The module, for this
    reason, makes this process unfit to be forked."""
    for name in names:
        effects.name = name
        if name in sys.modules:
            continue
        began = time.monotonic()
        try:
            with variables:
                __import__(name)
            spent.append((time.monotonic() - began, name))
        except BaseException as e:
            if lenient:
                continue
            import traceback

            tb = e.__traceback__.tb_next if e.__traceback__ else None
            return "".join(traceback.format_exception(type(e), e, tb)), "", ""
        if len(os.listdir("/proc/self/task")) > 1:
            calm()
        why = unsafe(before, memory=not lenient) or variables.copied() or effects.found()
        if why:
            return "", name, "after import %s %s" % (name, why)
    return "", "", unsafe(before) or effects.found()


def slowest(spent):
    """Names the modules that took longest, as NAME=SECONDS."""
    longest = sorted(spent, reverse=True)[:5]
    return " ".join("%s=%.6f" % (name, seconds) for seconds, name in longest if seconds >= 0.001)


def record(path, folder):
    """Writes the names of the modules that a program has loaded to a file. It omits modules in the
    program's own folder, because its user may edit them."""
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
        pass  # without the list, the ranks of the next run import the modules themselves


def origins():
    """Yields the files of all modules."""
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        yield getattr(module, "__file__", None)
        yield getattr(spec, "origin", None)
    yield os.path.realpath(sys.executable)


class Stamps:
    """Notes size, time and inode of the files of modules before they are read. golaunch compares
    them later, because a file may change while other files are still imported."""

    def __init__(self):
        self.of, self.seen = {}, set()

    def __enter__(self):
        self.note(*sys.path, *origins())  # Python reads the directory of an archive only once
        self.plain = FROZEN._find_spec

        def find_spec(name, path, target=None):
            spec = self.plain(name, path, target)
            self.note(getattr(spec, "origin", None))
            return spec

        FROZEN._find_spec = find_spec
        return self

    def __exit__(self, *_):
        FROZEN._find_spec = self.plain
        self.note(*origins())  # other importers may have found more files

    def note(self, *paths):
        for path in paths:
            if not isinstance(path, str) or path in self.seen:
                continue
            self.seen.add(path)
            path = os.path.abspath(path)
            try:
                while True:
                    try:
                        st = os.stat(path)
                        break
                    except NotADirectoryError:  # the path is inside an archive
                        path = os.path.dirname(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(st.st_mode):
                self.of.setdefault(path, "%d %d %d" % (st.st_size, st.st_mtime_ns, st.st_ino))

    def words(self):
        return [word for pair in self.of.items() for word in pair]


FROZEN = sys.modules["_frozen_importlib"]
