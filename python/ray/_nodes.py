"""The processes that `ray start` starts on a machine: an agent of golaunch, and on the head its coordinator and the dashboard."""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

from . import _cluster
from .job_submission import PORT

_LIMIT = 60.0  # seconds in which each process must be ready
_STOP = 45.0  # seconds in which each process must end after SIGTERM; the agent gives its ranks 30
_KEPT = 10  # directories of ended nodes whose logs are kept
_STEP = 0.02  # seconds between two looks at what a process has printed
ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # signals that end `ray start --block`
_STATE = "state"  # the coordinator's state, below the directory of `ray start`; the next head begins anew


class Failed(Exception):
    """The reason why a node cannot start, in words for people."""


def _born(pid):
    """When a process started, in the kernel's ticks; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _lives(p):
    return p["born"] is not None and _born(p["pid"]) == p["born"]


class Processes:
    """The processes that were started here and still run, the newest first."""

    def __init__(self):
        self._path = os.path.join(_cluster.directory(), "processes")
        self._read()

    def _read(self):
        try:
            with open(self._path) as f:
                noted = json.load(f)
        except (OSError, ValueError):
            noted = []
        self.all = [p for p in noted if _lives(p)]

    def add(self, what, pid, directory, address):
        """Notes a process. Returns False if another `ray start` has just started a coordinator."""
        with self._changing():
            if what == "coordinator" and any(p["what"] == what for p in self.all):
                return False
            self.all.insert(0, {"what": what, "pid": pid, "born": _born(pid), "dir": directory, "address": address})
        return True

    @contextlib.contextmanager
    def _changing(self):
        """Locks the notes, since other programs may change them at the same time."""
        with open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            yield
            with open(self._path + ".new", "w") as f:
                json.dump(self.all, f)
            os.replace(self._path + ".new", self._path)

    def stop(self, force=False, only=None):
        """Ends the processes. Returns how many there were, and which processes have not ended."""
        count, alive = 0, []
        for p in [p for p in self.all if only is None or p["pid"] in only]:
            if not _lives(p):
                continue
            count += 1
            _signal(p, signal.SIGKILL if force else signal.SIGTERM)
            if _lives(p):
                alive.append(p)
            elif p["what"] == "coordinator":
                shutil.rmtree(os.path.join(p["dir"], _STATE), ignore_errors=True)
        with self._changing():
            pass
        return count, alive


def _signal(p, number):
    """Sends a signal to a process, and waits for its end. The descriptor refers to this process
    even if another process gets its number.
    """
    try:
        fd = os.pidfd_open(p["pid"])
    except ProcessLookupError:
        return
    try:
        if _lives(p):
            signal.pidfd_send_signal(fd, number)
            select.select([fd], [], [], _STOP)
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


_libc = ctypes.CDLL(None)


def with_parent():
    """In a child: makes the kernel send SIGTERM to it when the process that started it ends."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    _libc.prctl(1, signal.SIGTERM)


def _start(noted, what, args, ready, directory, address, block):
    """Starts a process, and waits until its output shows that it is ready. Returns the process and
    its output.
    """
    log = os.path.join(directory, f"{what}.log")
    with open(log, "wb") as f:
        process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=with_parent if block else None)
    if not noted.add(what, process.pid, directory, address):
        process.kill()
        process.wait()
        raise Failed("another `ray start --head` of this user has just started a head on this machine; `ray stop` it first.")
    until = time.monotonic() + _LIMIT
    try:
        while True:
            with open(log, errors="replace") as f:
                text = f.read(1 << 20)
            if ready in text:
                return process, text
            code = process.poll()
            if code is not None or time.monotonic() > until:
                why = f"has ended with {code}" if code is not None else f"is not ready within {_LIMIT:.0f} s"
                raise Failed(f"the {what} {why}: {text.strip() or 'it has printed nothing'}")
            for number in signal.sigpending() & ENDS:
                raise SystemExit(128 + number)
            time.sleep(_STEP)
    except BaseException:
        noted.stop(only={process.pid})
        raise


def start(o):
    """Starts a node, the head or another, by the options of `ray start`. Returns the node's
    address, the addresses of the cluster and the dashboard, and the processes.
    """
    from golaunch.binary import find_binary

    golaunch, noted, started = find_binary(), Processes(), []
    if o.head and any(p["what"] == "coordinator" for p in noted.all):
        raise Failed(f"Ray is trying to start at {o.node_ip_address or socket.gethostname()}:{_port(o)}, but is already running at {_cluster.started_here()}; `ray stop` it first.")
    directory = os.path.join(_cluster.directory(), time.strftime("session-%Y%m%d-%H%M%S-") + str(os.getpid()))
    os.mkdir(directory, 0o700)
    _forget(noted)
    dashboard = ""
    try:
        address = o.address
        if o.head:
            host = o.node_ip_address or ""
            listen = f"[{host}]:{_port(o)}" if ":" in host else f"{host}:{_port(o)}"
            process, text = _start(noted, "coordinator", [golaunch, "coordinator", "--json", "--listen", listen, "--state-dir", os.path.join(directory, _STATE)], '"address"',
                                   directory, None, o.block)
            started.append(process)
            address = next(json.loads(line)["address"] for line in text.splitlines() if line.startswith("{") and '"address"' in line)
        said = {"head": bool(o.head), "dir": os.getcwd()}
        for name in ("num_cpus", "object_store_memory", "memory"):
            if getattr(o, name) is not None:
                said[name] = getattr(o, name)
        for name in ("resources", "labels"):
            if getattr(o, name):
                said[name] = getattr(o, name)
        args = [golaunch, "agent", "--coordinator", address, "--log-dir", os.path.join(directory, "logs"), "--label", f"{_cluster.LABEL}={json.dumps(said)}"]
        if any(p["what"] == "agent" for p in noted.all):  # this is one more node of this machine
            args += ["--name", f"{socket.gethostname().partition('.')[0]}-{os.getpid()}"]
        if o.node_ip_address:
            args += ["--address", o.node_ip_address]
        if o.num_gpus is not None:
            args += ["--num-gpus", str(o.num_gpus)]
        if os.geteuid() == 0:
            args += ["--allow-run-as-root"]
        process, text = _start(noted, "agent", args, " is in the cluster of ", directory, address, o.block)
        started.append(process)
        own = text.partition(" is in the cluster of ")[0].rpartition("(")[2].partition(",")[0]
        if o.head and o.include_dashboard is not False:
            program = "import sys; sys.path[:0] = sys.argv.pop().split(chr(10)); from ray._dashboard import main; main(*sys.argv[1:])"
            args = [sys.executable, "-c", program, address, o.dashboard_host, str(o.dashboard_port), "\n".join(_cluster._paths())]
            process, text = _start(noted, "dashboard", args, "listens at", directory, address, o.block)
            started.append(process)
            dashboard = text.split()[-1]
    except BaseException:
        noted.stop(only={p.pid for p in started})
        raise
    return own, address, dashboard, started


def _forget(noted):
    """Removes the files of the oldest nodes of this machine, beyond a number of nodes."""
    top, used = _cluster.directory(), {os.path.basename(p["dir"]) for p in noted.all}
    for name in sorted(n for n in os.listdir(top) if n.startswith("session-") and n not in used)[:-_KEPT]:
        shutil.rmtree(os.path.join(top, name), ignore_errors=True)


def _port(o):
    return PORT if o.port is None else o.port


def block(started):
    """Waits for a signal, or until one of the processes ends, and then ends the others. Returns the
    exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS | {signal.SIGCHLD})
    got, code = signal.SIGCHLD, None
    while got == signal.SIGCHLD:
        codes = [c for c in (p.poll() for p in started) if c is not None]
        if codes:
            code = 0 if all(c in (0, -signal.SIGTERM, 128 + signal.SIGTERM) for c in codes) else 1
            break
        got = signal.sigwait(ENDS | {signal.SIGCHLD})
    Processes().stop(only={p.pid for p in started})
    return 128 + got if code is None else code
