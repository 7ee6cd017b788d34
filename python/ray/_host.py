"""The process that a session has on each node, and, in the first one, its head.

A host is a worker of a group with one worker for each node. It forks the session's processes on its
node, holds the objects that were made there, hands connections of other nodes on to them, and says
when one has ended. It is one thread, so that it may fork.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque

from . import _cluster, _history, _wire, _worker
from ._head import Head
from .exceptions import RuntimeEnvSetupError

_SPARE = 2  # idle processes that are kept, beyond one for each CPU of the node
_OBJECTS = 0.3  # the part of the free memory that objects may use, as in Ray
_GRACE = 2.0  # seconds that an object waits for memory to be freed
# Variables by which golaunch tells the host that it is a rank; the host's processes are no ranks.
_OF_RANKS = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "NNODES",
    "MASTER_ADDR", "MASTER_PORT",
}
# Variables that only a new program reads: its dynamic linker, its C library, its interpreter.
_AT_START = re.compile("(LD|MALLOC)_.*|GLIBC_TUNABLES|PYTHON(?!PATH$|UNBUFFERED$).*")
_KEEP = 0.05  # the part of a disk that stays free of objects, as in Ray


def _free_memory():
    try:
        with open("/proc/meminfo") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def main():
    """Runs a rank of the job that is a cluster's session. The first rank of each node is the node's
    host.
    """
    config = json.loads(os.environ.pop(_cluster.VARIABLE))
    rank = int(os.environ["GROUP_RANK"])
    if os.environ["LOCAL_RANK"] != "0":
        _cluster.hold(f"{config['session']}-h{rank}")
        return
    node = dict(config["nodes"][os.environ["GOLAUNCH_NODE"]])
    if config["gpus"]:
        node["num_gpus"] = int(os.environ["LOCAL_WORLD_SIZE"])
        node["gpus"] = [int(g) if g.isdigit() else g for g in os.environ.pop("CUDA_VISIBLE_DEVICES", "").split(",") if g] or None
    store = _cluster.Store()
    made = _cluster.facts(os.urandom(28).hex(), node, rank == 0)
    if rank:
        head = tuple(json.loads(store.get("head")))
        try:
            _Node(config, rank, made).join(head).run()
        except OSError as error:
            print(f"the head of the session, at {head[2]}:{head[3]}, cannot be reached ({error}): the session has ended", file=sys.stderr)
    elif store.has("head"):
        print("the head of the session has ended, and with it the session", file=sys.stderr)
    else:
        host = _Node(config, rank, made)
        store.set("head", json.dumps(host.address))
        host.run()


def _in_memory(path):
    """Whether a directory is in a file system that has no disk."""
    best, kind = "", ""
    with open("/proc/self/mounts") as f:
        for line in f:
            _, at, of = line.split()[:3]
            at = at.encode().decode("unicode_escape")
            if (path + "/").startswith(at.rstrip("/") + "/") and len(at) >= len(best):
                best, kind = at, of
    return kind in ("tmpfs", "ramfs")


class Host:
    """The object of the group's worker. It forks the host itself, and ends with it."""

    def __init__(self, config):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            try:
                signal.signal(signal.SIGURG, signal.SIG_DFL)
                ours.close()
                rank = int(os.environ["RANK"])
                host = _Node(config, rank, config["nodes"][rank])
                host.watch(theirs)
                host.run()
            except BaseException:
                import traceback

                traceback.print_exc()
            os._exit(1)
        theirs.close()
        self._sock = ours
        os.register_at_fork(after_in_child=ours.close)
        signal.signal(signal.SIGCHLD, lambda *_: os._exit(1))  # golaunch then ends everything that the host has started
        self._address = self._said()

    def _said(self):
        return tuple(json.loads(self._sock.makefile().readline()))

    def address(self):
        """The name, the node, the address and the port of the host."""
        return self._address

    def join(self, head):
        """Makes the host join the session whose head is at an address."""
        self._sock.sendall(json.dumps(head).encode() + b"\n")


class Process:
    """A process of the session on this node."""

    def __init__(self, proc, pid, job, env, address):
        self.proc, self.pid, self.job, self.env, self.address = proc, pid, job, env, address
        self.link = None
        self.pidfd = None
        self.idle = False
        self.then = None  # the callback of the order for this process, until the process has its environment


class _Node:
    def __init__(self, config, rank, facts):
        self.config, self.session, self.node_id = config, config["session"], facts["id"]
        self.proc = f"{self.session}-h{rank}"
        self.loop = _wire.Loop()
        self.tls = config["certificate"]
        self.made = 0
        self.processes, self.linked = {}, {}
        self.objects, self.pulls, self.used = {}, {}, 0
        self.short = deque()  # requests for memory that wait until some memory is freed
        self.rooms = {}  # the part of used that is not sealed yet, by connection
        self.mover = None
        self.links = []
        self.server = _wire.listen(self.proc)
        self.loop.register(self.server.fileno(), self._accept)
        self.ip, self.port, self.far = facts["ip"], 0, None
        if self.tls:
            self.far = socket.create_server((self.ip, 0), family=socket.AF_INET6 if ":" in self.ip else socket.AF_INET, backlog=1024)
            self.far.setblocking(False)
            self.port = self.far.getsockname()[1]
            self.loop.register(self.far.fileno(), self._accept_far)
        self.address = (self.proc, self.node_id, self.ip, self.port)
        free, resources = _free_memory(), facts["resources"]
        resources.setdefault("object_store_memory", float(int(free * _OBJECTS)))
        resources.setdefault("memory", float(max(0, free - int(resources["object_store_memory"]))))
        self.limit = resources["object_store_memory"]
        self.cpus = resources.get("CPU", 1)
        self.facts = dict(facts, address=self.address, hostname=socket.gethostname(), name=os.environ.get("GOLAUNCH_NODE", ""))
        self.head = self.head_address = None  # a Head in this process, or a connection to the head
        if rank == 0:
            self.head, self.head_address = Head(self), self.address
            self.head.joined(self.facts, self)

    def join(self, head):
        """Makes this a node of the session whose head is at an address."""
        sock = _wire.connect_far(head[2], head[3], head[0])
        self.head_address = head
        self.head = _wire.Connection(self.loop, sock, self._from_head, lambda _: os._exit(1), tls=_wire.certificates(self.tls, False))
        self.head.send("node", self.facts)
        return self

    def watch(self, parent):
        """Watches the group's worker, which names the head. The worker ends with this host."""
        parent.sendall(json.dumps(self.address).encode() + b"\n")

        def told(_):
            text = parent.recv(4096)
            if not text:
                os._exit(0)
            self.join(tuple(json.loads(text)))

        self.loop.register(parent.fileno(), told)

    def run(self):
        self.loop.run()

    def do_leave(self, then):
        """The session is over."""
        for process in list(self.processes.values()):
            self.do_end(None, process.proc)
        for link in self.links:
            link.send("over")  # to the ranks that hold the node's other GPUs
        kept = _cluster.copies(self.config["job"])
        for name in os.listdir(kept) if os.path.isdir(kept) else ():
            if name.startswith(self.session + "."):
                shutil.rmtree(os.path.join(kept, name), ignore_errors=True)
        os._exit(0)

    # Connections

    def _accept(self, _):
        for _ in range(64):
            try:
                sock, _ = self.server.accept()
            except BlockingIOError:
                return
            if not _wire.same_user(sock):
                sock.close()
                continue
            self._linked(_wire.Connection(self.loop, sock, self._said, self._left))

    def _linked(self, link):
        self.links.append(link)

    def _accept_far(self, _):
        try:
            sock, _ = self.far.accept()
        except OSError:
            return
        if self.loop.strangers >= _wire.STRANGERS:
            sock.close()
            return
        self.loop.strangers += 1
        sock.setblocking(False)
        fd, have, over = sock.fileno(), bytearray(), []

        def known():
            over.append(True)
            self.loop.strangers -= 1
            self.loop.unregister(fd)

        def greet(_):
            try:
                data = sock.recv(_wire.NAME - len(have))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            have.extend(data)
            if data and len(have) < _wire.NAME:
                return
            known()
            if data:
                self._hand_on(have.decode("ascii", "replace").strip(), sock)
            else:
                sock.close()

        self.loop.register(fd, greet)
        self.loop.later(_wire.CONNECT, lambda: over or (known(), sock.close()))

    def _hand_on(self, proc, sock):
        if proc == self.proc:
            self._linked(_wire.Connection(self.loop, sock, self._said, self._left, tls=_wire.certificates(self.tls, True), server=True))
            return
        if proc == "move":
            self._move("serve", fds=[sock.fileno()], done=sock.close)
            return
        link = self.linked.get(proc)
        if link is not None:
            link.send("accept", fds=[sock.fileno()])
        sock.close()

    def _said(self, link, message, fds):
        op = message[0]
        if op == "?":
            number, op, args = message[1], message[2], message[3:]

            def then(value=None, error=None, fds=()):
                link.answer(number, value, error, fds)

            do = getattr(self, "on_" + op, None)
            if do is not None:
                do(link, then, fds, *args)
            elif isinstance(self.head, Head):
                self.head.asked(link, then, op, args)
            else:
                then(error=RuntimeError(f"{op}: this is not the head of the session"))
            return
        do = getattr(self, "said_" + op, None)
        if do is not None:
            do(link, fds, *message[1:])
        elif isinstance(self.head, Head):
            self.head.said(link, op, message[1:])

    def _left(self, link):
        if link in self.links:
            self.links.remove(link)
        self.used -= self.rooms.pop(link, 0)
        for proc, other in list(self.linked.items()):
            if other is link:
                del self.linked[proc]
        if isinstance(self.head, Head):
            self.head.left(link)

    def said_hello(self, link, fds, proc):
        link.peer = proc
        self.linked[proc] = link
        process = self.processes.get(proc)
        if process is not None:
            process.link = link

    def on_session(self, link, then, fds):
        """The facts that another driver of this machine needs to join."""
        if self.head_address is None:
            then(error=RuntimeError("this node has not joined its session yet"))
            return
        then({"session": self.session, "head": self.head_address, "certificate": self.tls, "hosts": [self.address], "cluster": self.config["cluster"]})

    def on_of_head(self, link, then, fds, op, *args):
        """Passes a question of a program that is no driver to the head."""
        if isinstance(self.head, Head):
            self.head.asked(link, then, op, args)
        else:
            self.head.ask(lambda value, error, _: then(value, error), op, *args)

    # Processes

    def _from_head(self, link, message, fds):
        if message[0] == "?":
            number = message[1]
            self.do(lambda value=None, error=None: link.answer(number, value, error), message[2], *message[3:])
        else:
            self.do(None, *message)

    def do(self, then, op, *args):
        """An order of the head."""
        getattr(self, "do_" + op)(then, *args)

    def tell_head(self, op, *args):
        if isinstance(self.head, Head):
            self.head.told(self.node_id, op, args)
        elif self.head is not None:
            self.head.send("host", self.node_id, op, args)

    def do_worker(self, then, job, env):
        """Provides a process for a job's tasks; it may be an idle process."""
        for process in self.processes.values():
            if process.idle and process.job == job["id"] and process.env == env["key"]:
                process.idle = False
                then(process.address)
                return
        try:
            process = self._fork(job, env)
        except OSError as error:
            then(error=RuntimeError(f"a process cannot be started on node {self.node_id}: {error}"))
            return
        if env["key"]:  # preparing its environment may fail
            process.then = then
        else:
            then(process.address)

    def do_idle(self, then, proc):
        process = self.processes.get(proc)
        if process is None:
            return
        process.idle = True
        idle = [p for p in self.processes.values() if p.idle]
        if len(idle) > self.cpus + _SPARE:
            self._retire(idle[0])

    def _retire(self, process):
        """Ends an idle process, unless it owns objects or actors."""
        process.idle = False
        self.processes[process.proc] = self.processes.pop(process.proc)  # another process is asked next

        def stays(_value, error, _):
            process.idle = error is None

        process.link.ask(stays, "retire")

    def do_send(self, then, proc, message):
        process = self.processes.get(proc)
        if process is not None and process.link is not None:
            process.link.send(*message)

    def do_end(self, then, proc):
        """Kills a process."""
        process = self.processes.get(proc)
        if process is not None:
            process.idle = False
            signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)

    def do_die(self, then):
        os._exit(1)

    def do_lives(self, then, proc):
        """Whether a process still runs."""
        process = self.processes.get(proc)
        then(process is not None and os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None)

    def do_tasks(self, then):
        """Returns what the processes of this node know about tasks, and the pids of the processes
        that run a task.
        """
        _history.gathered(self.loop, [link.ask for link in self.linked.values() if not link.far], "tasks", lambda answers: then((answers, {p.proc: p.pid for p in self.processes.values()})))

    def do_owner_gone(self, then, base):
        """Frees the objects of a process that has ended, or of all processes of a lost node."""
        self.said_free(None, (), [oid for oid in self.objects if oid.startswith(base)])

    def do_job_over(self, then, job, but):
        for process in list(self.processes.values()):
            if process.job == job and process.proc not in but:
                self.do_end(None, process.proc)

    def _fork(self, job, env):
        self.made += 1
        proc = f"{self.session}-{self.node_id[:6]}-{self.made}"
        server = _wire.listen(proc)
        ours, theirs = socket.socketpair()
        address = (proc, self.node_id, self.ip, self.port)
        config = {
            "address": address, "host": self.address, "head": self.head_address, "session": self.session, "job": job, "env": env,
            "certificate": self.tls, "resources": self.facts["resources"], "temp_dir": self.config["temp_dir"],
            "dirs": _cluster.copies(self.config["job"]), "cluster": self.config["cluster"],
        }
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                _become(config, server, theirs, self)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(1)
        server.close()
        theirs.close()
        process = Process(proc, pid, job["id"], env["key"], address)
        process.pidfd = os.pidfd_open(pid)
        self.processes[proc] = process
        link = _wire.Connection(self.loop, ours, self._said, self._left)
        link.peer, process.link = proc, link
        self.linked[proc] = link
        self._linked(link)
        self.loop.register(process.pidfd, lambda _: self._ended(process))
        return process

    def _ended(self, process):
        process.link.drain()  # the last words of the process
        self.processes.pop(process.proc, None)  # from now on, golaunch does nothing to this pid
        self.loop.unregister(process.pidfd)
        os.close(process.pidfd)
        _, status = os.waitpid(process.pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            why = f"signal {number} ({signal.Signals(number).name})" if number in signal.valid_signals() else f"signal {number}"
        else:
            why = f"exit code {os.WEXITSTATUS(status)}"
        process.link.close()
        self.said_unfit(process.link, (), f"its process on node {self.node_id} ({self.ip}) has ended with {why}: its output, or golaunch logs, says more", process)
        self.tell_head("ended", process.address, why)

    def said_ready(self, link, fds):
        """A process has prepared its environment."""
        process = self.processes[link.peer]
        then, process.then = process.then, None
        then(process.address)

    def said_unfit(self, link, fds, why, process=None):
        process = process or self.processes[link.peer]
        then, process.then = process.then, None
        if then is not None:
            then(error=RuntimeEnvSetupError(why))

    def said_created(self, link, fds, actor, error):
        process = self.processes.get(link.peer)
        self.tell_head("created", actor, error, process and process.pid)

    def said_exiting(self, link, fds, actor, why):
        self.tell_head("exiting", actor, why)

    # Objects

    def on_room(self, link, then, fds, size):
        """Where an object of the given size may be stored here: in memory, or in a file."""
        if link.closed:  # its connection has ended while it waited
            return
        if self.used + size <= self.limit:
            self.used += size
            self.rooms[link] = self.rooms.get(link, 0) + size
            then(True)
            return
        fd, why = self._file(size)
        if fd is not None:
            then(False, fds=[fd])
            os.close(fd)
            return

        def late():
            if waits in self.short:
                self.short.remove(waits)
                then(error=("full", self._full(size, why)))

        waits = (link, then, size)
        self.short.append(waits)
        self.loop.later(_GRACE, late)

    def said_unroom(self, link, fds, size):
        """The caller does not make the object after all."""
        self.rooms[link] -= size
        self.used -= size
        self._serve_short()

    def _serve_short(self):
        while self.short and self.used + self.short[0][2] <= self.limit:
            self._grant()

    def _grant(self):
        link, then, size = self.short.popleft()
        self.on_room(link, then, (), size)

    def _file(self, size):
        """A file on disk without a name, which is removed with its last descriptor; or None, and
        the reason.
        """
        why = "objects do not spill to disk (RAY_automatic_object_spilling_enabled=0)"
        for where in self.config["spill"]:
            fd, why = self._file_in(where, size)
            if fd is not None:
                break
        else:
            return None, why
        return fd, None

    @staticmethod
    def _file_in(where, size):
        try:
            if _in_memory(where):
                return None, f"{where} is in memory too: name a directory on a disk, by object_spilling_directory"
            disk = os.statvfs(where)
            free, keep = disk.f_bavail * disk.f_frsize, int(disk.f_blocks * disk.f_frsize * _KEEP)
            if size > free - keep:
                return None, f"the disk of {where} has {free} bytes left, and {keep} of them must stay free"
            try:
                return os.open(where, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
            except OSError:  # some file systems cannot do that
                fd, path = tempfile.mkstemp(prefix="golaunch-object-", dir=where)
                os.unlink(path)
                return fd, None
        except OSError as error:
            return None, f"{where} takes no file: {error.strerror}"

    def _full(self, size, why):
        return (f"an object of {size} bytes does not fit into the memory for objects of node {self.node_id} ({self.ip}): {self.used} of {int(self.limit)} bytes are in use, "
                f"and {why}; drop references, or start the cluster with a larger object_store_memory")

    def said_sealed(self, link, fds, oid, size, in_memory):
        if in_memory:
            self.rooms[link] -= size
        self.said_free(link, (), [oid])  # the object may be made again
        self.objects[oid] = fds[0], size if in_memory else 0
        for other in self.pulls.pop(oid, ()):
            other(fds=[fds[0]])

    def said_free(self, link, fds, oids):
        for oid in oids:
            held = self.objects.pop(oid, None)
            if held is not None:
                os.close(held[0])
                self.used -= held[1]
        self._serve_short()

    def said_free_at(self, link, fds, where):
        """Frees copies on other nodes too: {host: [objects]}."""
        for host, oids in where.items():
            if host == self.proc:
                self.said_free(link, (), oids)
            else:
                self.tell_head("free", host, oids)

    def do_free(self, then, oids):
        self.said_free(None, (), oids)

    def on_object(self, link, then, fds, oid, size, hosts):
        """The descriptor of an object. If the object is not here, another node sends it."""
        held = self.objects.get(oid)
        if held is not None:
            then(fds=[held[0]])
            return
        if oid in self.pulls:
            self.pulls[oid].append(then)
            return
        others = [h for h in hosts if h[0] != self.proc]
        if not others:
            then(error=("lost", f"node {self.node_id} does not have it any more"))
            return
        takes, into = size if self.used + size <= self.limit else 0, []
        if not takes:
            fd, why = self._file(size)
            if fd is None:
                then(error=("full", self._full(size, why)))
                return
            into.append(fd)
        self.used += takes
        self.pulls[oid] = [then]

        def pulled(value, error, fds):
            thens = self.pulls.pop(oid, [])
            if error is not None:
                self.used -= takes
                for fd in into:
                    os.close(fd)
                for then in thens:
                    then(error=("lost", str(error)))
                return
            fd, = into or fds
            self.objects[oid] = fd, takes
            for then in thens:
                then(self.address, fds=[fd])

        self._move("pull", oid, size, [h[2:] for h in others], fds=into, then=pulled)

    def _move(self, op, *args, fds, then=None, done=None):
        """Makes the mover carry an object. The mover is a process with threads, which the host
        itself may not have.
        """
        if self.mover is None:
            ours, theirs = socket.socketpair()
            if os.fork() == 0:
                try:
                    ours.close()
                    _keep_only(theirs.fileno(), self)
                    from ._mover import Mover

                    Mover(theirs, self.tls).run()
                finally:
                    os._exit(1)
            theirs.close()
            self.mover = _wire.Connection(self.loop, ours, self._said, lambda _: setattr(self, "mover", None))
        self.mover.ask(then or (lambda *_: None), op, *args, fds=fds)
        if done is not None:
            done()


_KEPT = []  # the host's objects in its forks: their descriptors are already closed, and must not be closed again


def _keep_only(*fds):
    """Closes all descriptors after a fork, except the given ones. The last argument keeps objects
    alive.
    """
    *fds, host = fds
    _KEPT.append(host)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in fds:
            try:
                os.close(fd)
            except OSError:
                pass


def _become(config, server, sock, host):
    """Turns a fork of the host into a process for tasks, in the interpreter that its environment
    names.
    """
    _keep_only(server.fileno(), sock.fileno(), host)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        _change(config, server, sock)
    except OSError as error:
        sock.sendall(_wire.Connection.frame("unfit", f"on node {config['address'][1]} ({config['address'][2]}): {error}"))
        os._exit(1)
    _worker.main(config, server, sock)


def _change(config, server, sock):
    """Gives a process its environment, which may name another interpreter."""
    env = config["env"]
    for name in list(os.environ):
        if name in _OF_RANKS or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    changed = set()
    for name, value in (env.get("env_vars") or {}).items():  # a value may name other variables, as "${PATH}:/x" does
        value = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
        if value != os.environ.get(name, ""):
            changed.add(name)
        os.environ[name] = value
    if "PYTHONPATH" in changed:
        sys.path[:0] = [p for p in os.environ["PYTHONPATH"].split(os.pathsep) if p and p not in sys.path]
    if env.get("working_dir") and not env.get("package"):
        os.chdir(env["working_dir"])
    command = shlex.split(env.get("py_executable") or shlex.quote(config["job"]["python"]))
    if command != [sys.executable] or any(map(_AT_START.fullmatch, changed)):
        for fd in (server.fileno(), sock.fileno()):
            os.set_inheritable(fd, True)
        os.environ["GOLAUNCH_PROCESS"] = json.dumps([config, server.fileno(), sock.fileno(), sys.path])
        home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        command += ["-c", f"import sys; sys.path.insert(0, {home!r}); from ray._worker import executed; executed()"]
        os.execvp(command[0], command)
