# --- The program


def prepare(order):
    """Sets up sys.path and __main__ for a program. Returns a function to run it, with arguments."""
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
    """Returns the importer for a directory or an archive; None for a script."""
    for hook in sys.path_hooks:
        try:
            return hook(file)
        except ImportError:
            continue
    return None


def forget():
    """Removes the text of this server's stub, which CPython 3.13 and later show in tracebacks."""
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        linecache.cache.pop("<string>", None)
        getattr(linecache, "_interactive_cache", {}).clear()


def remember(code, program):
    """Makes tracebacks show the text of a command, as CPython 3.13 and later do."""
    import linecache

    by_code = hasattr(linecache, "_interactive_cache")
    linecache._register_code(code if by_code else "<string>", program, "<string>")


def trim():
    """Hides the frames of this server from the handler of uncaught exceptions."""
    hook = getattr(sys, "excepthook", None)

    def shown(kind, value, tb):
        sys.excepthook = hook
        tb = tb and tb.tb_next  # the frame of the stub
        while tb and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        if value is not None:
            value.__traceback__ = tb
        sys.last_traceback = tb
        hook(kind, value, tb)

    if hook is not None:
        sys.excepthook = shown
