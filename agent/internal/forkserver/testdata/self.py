"""Describes this process, for a comparison of a started process with a forked one."""

import ctypes
import faulthandler
import gc
import json
import locale
import multiprocessing
import os
import resource
import signal
import stat
import sys
import threading


class Pickled:
    pass


def status(*names):
    with open("/proc/self/status") as f:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in f)
    return {name: lines[name] for name in names}


def stream(s):
    return {
        "type": type(s).__name__,
        "name": s.name,
        "mode": s.mode,
        "encoding": s.encoding,
        "errors": s.errors,
        "line_buffering": s.line_buffering,
        "write_through": s.write_through,
        "buffer": type(s.buffer).__name__,
        "seekable": s.seekable(),
        "isatty": s.isatty(),
        "fileno": s.fileno(),
    }


def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = [stat.S_IFMT(os.fstat(int(fd)).st_mode), os.get_blocking(int(fd)), os.get_inheritable(int(fd))]
        except OSError:
            pass  # the directory itself
    return found


def read(name):
    with open("/proc/self/" + name, "rb") as f:
        return f.read().decode(errors="surrogateescape").split("\0")


def death_signal():
    out = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(out), 0, 0, 0)
    return out.value


def handler(number):
    try:
        return str(getattr(signal.getsignal(number), "__name__", signal.getsignal(number)))
    except ValueError:
        return None


libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
own = sys.modules["__main__"]
pid = os.getpid()
portrait = {
    "argv": sys.argv,
    "orig_argv": getattr(sys, "orig_argv", None),
    "path": sys.path,
    "flags": str(sys.flags),
    "xoptions": sys._xoptions,
    "warnoptions": sys.warnoptions,
    "executable": [sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix],
    "main": {
        name: [type(value).__name__, value if isinstance(value, (str, type(None))) else ""]
        for name, value in vars(own).items()
        if name.startswith("__")
    },
    "builtins": type(own.__builtins__).__name__,
    "spec": str(getattr(own.__spec__, "name", None)),
    "pickled": Pickled.__module__,
    "cwd": os.getcwd(),
    "environ": sorted(repr(pair) for pair in os.environb.items() if not pair[0].startswith(b"RANKGUARD_")),
    "getenv": repr(libc.getenv(b"RANK")),
    "cmdline": read("cmdline"),
    "environment": sorted(word for word in read("environ") if not word.startswith("RANKGUARD_")),
    "fds": descriptors(),
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "same streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "session": [os.getsid(0) == pid, os.getpgid(0) == pid],
    "parent": os.getppid(),
    "status": status("Name", "Umask", "SigBlk", "SigIgn", "SigCgt", "Threads", "NSpid" if False else "Seccomp", "Cpus_allowed_list"),
    "handlers": {int(n): handler(n) for n in signal.valid_signals()},
    "affinity": sorted(os.sched_getaffinity(0)),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "death signal": death_signal(),
    "nice": os.nice(0),
    "oom": read("oom_score_adj"),
    "cgroup": read("cgroup"),
    "locale": locale.setlocale(locale.LC_ALL),
    "encodings": [sys.getfilesystemencoding(), locale.getpreferredencoding(False), sys.getdefaultencoding()],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
    "limits of Python": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags()],
    "faulthandler": faulthandler.is_enabled(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.breakpointhook is sys.__breakpointhook__],
    "trace": [sys.gettrace(), sys.getprofile()],
    "thread": [
        threading.main_thread().name,
        threading.main_thread().native_id == pid,
        threading.main_thread() is threading.current_thread(),
        threading.active_count(),
    ],
    "multiprocessing": [multiprocessing.current_process().name, str(multiprocessing.parent_process()), multiprocessing.get_start_method(True)],
    "children": read("task/%d/children" % pid),
}
if portrait["main"].get("__cached__"):
    portrait["main"]["__cached__"] = portrait["main"]["__cached__"][0]
print(json.dumps(portrait, indent=1, default=str))
