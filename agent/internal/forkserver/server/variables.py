# Libraries in C read variables whose names begin like this when they are loaded. The class
# Variables sees only what Python code reads.
READ_BY_LIBRARIES = (
    b"LD_", b"GLIBC_", b"MALLOC_", b"PYTHON", b"OMP_", b"GOMP_", b"KMP_", b"MKL_", b"OPENBLAS_", b"GOTO_", b"BLIS_", b"LC_", b"LANG",
    b"NUMEXPR_", b"VECLIB_", b"ATEN_", b"DNNL_", b"ONEDNN_", b"TZ", b"FSSPEC_", b"NUMBA_", b"TQDM_",
)


class Variables:
    """Notes which variables Python code reads during imports, in which module, and which variables
    it changes. It ignores loops over all variables that look for particular names, as in tqdm and
    numba."""

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
        """Returns which module keeps a copy of all variables, or "". Such a copy would lack the
        rank's own variables."""
        for module, names in self.listed.items():
            if names and names <= self.of_module.get(module, set()) and copy_of(names):
                return "%s has a copy of all variables, without those of a rank" % module
        return ""

    def differs(self, env):
        """Returns which variable was read with a value other than the rank's, or ""."""
        for name in env.keys() | self.at_start.keys():
            if env.get(name) != self.at_start.get(name):
                if name in self.names and not name.startswith(MARK):
                    return "%s asks for %s when it is imported" % (self.names[name], os.fsdecode(name))
                if name.startswith(READ_BY_LIBRARIES):
                    return "%s is read when libraries are loaded, and is another here" % os.fsdecode(name)
        return ""

    def change(self):
        """Changes a rank's variables as the modules have changed the variables of this process."""
        for name, value in self.changes.items():
            if value is None:
                os.environb.pop(name, None)
            else:
                os.environb[name] = value


LOOPS = {_collections_abc.ItemsView.__iter__.__code__, _collections_abc.ValuesView.__iter__.__code__}
LOOK_FOR_THEIR_OWN = {"fsspec.config", "ctypes.util", "subprocess"}  # in a copy; the last two make the copy for a child process


def copy_of(names):
    """Reports whether a dict has variables with all these names."""
    names = {os.fsdecode(name) for name in names}
    return any(issubclass(type(o), dict) and len(o) >= len(names) and names <= o.keys() for o in gc.get_referents(*gc.get_objects()))


def caller():
    """Returns the module that has called into os or collections.abc."""
    frame = sys._getframe(2)
    while frame and frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "?") if frame else "?"
