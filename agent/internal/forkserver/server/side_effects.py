# --- Side effects of imports

# Importing these packages, or Python's own modules, has only side effects that do no harm in a
# fork: exit handlers that free what each process has for itself, caches of the user, and process
# ids that the package compares with the current one before it uses them.
HARMLESS = {
    "PIL", "certifi", "filelock", "fsspec", "h5py", "joblib", "llvmlite", "matplotlib", "multiprocess", "numba", "psutil", "pyarrow", "ray",
    "torch", "triton", "verl",
}  # fmt: skip
# These modules ask for the process id on behalf of their callers.
FOR_CALLERS = {"multiprocessing.process", "psutil", "psutil._pslinux"}
STANDARD = os.path.join(os.path.dirname(os.__file__), "")
HERE = "/proc/self/cwd"
MODULE_DICT = type(sys).__dict__["__dict__"]  # reads a module's dict without loading a lazy module


class Watched:
    # A function in C with a hook: a call first calls tell, then the function, and then the result
    # of tell. Like the function itself, the object does not become a method when it is an attribute
    # of a class.
    __slots__ = ("plain", "tell")

    def __init__(self, plain, tell):
        self.plain, self.tell = plain, tell

    def __call__(self, *args, **kwargs):
        then = self.tell(*args, **kwargs)
        result = self.plain(*args, **kwargs)
        if then:
            then()
        return result

    def __getattr__(self, name):
        return getattr(self.plain, name)


class SideEffects:
    """Notes effects of imports that each rank must have for itself: files, exit handlers, and
    effects that depend on the process id."""

    def __init__(self):
        self.dir, self.why, self.cpus, self.files, self.name = os.readlink(HERE), "", "", [], ""
        opens = Watched(open, self.opens)
        new = {name: self.creates for name in ("mkdir", "mkfifo", "mknod")}
        to = {name: self.creates_second for name in ("link", "rename", "replace", "symlink")}
        tells = {**new, **to, "open": self.opens_descriptor, "getpid": self.asks_pid, "sched_getaffinity": self.asks_cpus}
        self.watched = [(os, name, Watched(getattr(os, name), tell)) for name, tell in tells.items()]
        self.watched += [(builtins, "open", opens), (io, "open", opens), (atexit, "register", Watched(atexit.register, self.registers))]

    def __enter__(self):
        for module, name, watched in self.watched:
            setattr(module, name, watched)
        return self

    def __exit__(self, *_):
        """Restores the plain functions in all modules that have imported watched functions. Watched
        functions that are kept elsewhere lose their hooks."""
        for module, name, watched in self.watched:
            setattr(module, name, watched.plain)
            watched.tell = nothing
        for module in list(sys.modules.values()):
            if isinstance(module, type(sys)):
                names = MODULE_DICT.__get__(module)
                for name, value in list(names.items()):
                    if type(value) is Watched:
                        names[name] = value.plain

    def found(self):
        """Returns what forks of this process cannot share, or ""."""
        if not self.why and self.dir != os.readlink(HERE):
            self.why = "the working directory is %s and was %s" % (os.readlink(HERE), self.dir)
        for path, module in self.files:
            if not self.why and os.path.lexists(path):
                self.why = "%s creates %s when it is imported" % (module, path)
        self.finalizers()
        return self.why

    def maker(self, depth):
        """Returns the module whose import has made the call, or "" if the module's side effects are
        harmless. The frame of the call is depth frames above this frame."""
        frame = sys._getframe(depth)
        while not of_module(frame.f_code) and frame.f_back:
            frame = frame.f_back
        own = frame.f_code.co_filename == __file__  # a module in C has no frame
        name = self.name if own else frame.f_globals.get("__name__", "?")
        return "" if standard(frame) and not own or harmless(name) else name

    # These hooks are called like the functions that they watch, so their parameters have the same
    # names.

    def created(self, path, dir_fd=None):
        path, module = os.fsdecode(path), self.maker(4)
        if dir_fd is not None:
            path = os.path.join(os.readlink("/proc/self/fd/%d" % dir_fd), path)
        path = os.path.abspath(path)
        return module and (lambda: self.files.append((path, module)))

    def creates(self, path, *_, dir_fd=None, **__):
        return self.created(path, dir_fd)

    def creates_second(self, src, dst, *_, dst_dir_fd=None, dir_fd=None, **__):
        return self.created(dst, dir_fd if dst_dir_fd is None else dst_dir_fd)

    def opens_descriptor(self, path, flags, *_, dir_fd=None, **__):
        if flags & os.O_CREAT and makes(path, flags & os.O_TRUNC):
            return self.created(path, dir_fd)
        return None

    def opens(self, file, mode="r", *_, **__):
        if not isinstance(file, int) and set(mode) & set("wxa") and makes(file, "a" not in mode):
            return self.created(file)
        return None

    def asks_pid(self):
        caller = sys._getframe(2)
        name = caller.f_globals.get("__name__", "")
        if name in FOR_CALLERS or not (standard(caller) or harmless(name)):
            module = self.maker(3)
            if module and not self.why:
                self.why = "%s asks for its process id when it is imported" % module

    def asks_cpus(self, *_):
        self.cpus = self.cpus or self.maker(3)

    def registers(self, function, *_, **__):
        module = self.maker(3)
        if not module or self.why or harmless(module_of(function)) or function == getattr(finalize(), "_exitfunc", None):
            return
        self.why = "%s registers a function with atexit when it is imported" % module

    def finalizers(self):
        """Looks for finalizers that run at exit."""
        for of in list(getattr(finalize(), "_registry", {}).values()):
            if of.atexit and not self.why and not harmless(module_of(of.func)):
                self.why = "%s.%s is registered to run at exit (weakref.finalize)" % (module_of(of.func), getattr(of.func, "__qualname__", "?"))


def nothing(*_, **__):
    pass


def makes(path, anew):
    """Reports whether opening a path for writing makes a file, or empties it if anew is set."""
    return not os.path.exists(path) or anew and os.path.isfile(path)


def finalize():
    return getattr(sys.modules.get("weakref"), "finalize", None)


def module_of(function):
    function = getattr(function, "func", function)  # the function of a functools.partial
    return getattr(function, "__module__", None) or ""


def of_module(code):
    """Reports whether code is the body of a module from a file, or code of this server."""
    return code.co_filename == __file__ or code.co_name == "<module>" and not code.co_filename.startswith("<")


def harmless(module):
    return module.partition(".")[0] in HARMLESS


def standard(frame):
    """Reports whether code is Python's own."""
    file = frame.f_code.co_filename
    return file.startswith("<frozen ") or file == __file__ or (file.startswith(STANDARD) and "-packages" not in file)
