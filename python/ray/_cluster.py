"""The session of a golaunch cluster: a job, whose ranks are the hosts.

The first driver that needs it submits it, and the head ends it when no driver needs it any more.
"""

import json
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time

from . import _wire

PREFIX = f"golaunch-session-{os.getuid()}-"
LABEL = "ray.io/node"  # the label of an agent in which `ray start` describes its node, as JSON
VARIABLE = "GOLAUNCH_SESSION"  # what the hosts need to know
_LIMIT = 60.0  # seconds in which a session must begin, and an ending session must have ended
_LOOK = 1.0  # seconds between two questions to the coordinator
_STEP = 0.02  # seconds between two looks for a socket on this machine
_READ = re.compile("HOME|PATH|TMPDIR|CUDA_VISIBLE_DEVICES|(GOLAUNCH|SLURM|LD)_.*")  # variables that change what golaunch itself does
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SETS = "GOLAUNCH_RAY_SETS"  # a variable whose value sets others
_NAME = re.compile(rf"ray-{os.getuid()}-(\d+)")
_PROGRAM = "import json,os,sys; sys.path += json.loads(os.environ['" + VARIABLE + "'])['path']; from ray._host import main; main()"


def _directory():
    return os.path.join(tempfile.gettempdir(), f"golaunch-ray-{os.getuid()}")


def directory():
    """The directory in which this user's processes on this machine note things."""
    path = _directory()
    os.makedirs(path, mode=0o700, exist_ok=True)
    if not _own(path):
        raise PermissionError(f"{path} is no directory of this user alone: remove it, or set TMPDIR")
    return path


def copies(of_job):
    """The directory in which a host keeps the working directories of its session. golaunch removes
    the directory of a program's own session, however that session ends.
    """
    controller = None if of_job else os.environ.get("GOLAUNCH_CONTROLLER")
    return os.path.join(os.path.dirname(controller), "cluster", "dirs") if controller else os.path.join(directory(), "dirs")


def _own(path):
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    return info.st_uid == os.getuid() and info.st_mode & 0o170077 == 0o040000


def started_here():
    """The address of the cluster to which a node on this machine belongs, if `ray start` started
    the node and the node still runs; otherwise None.
    """
    from ._nodes import Processes

    if not _own(_directory()):
        return None
    return next((p["address"] for p in Processes().all if p["what"] == "agent"), None)


def described(node):
    """What `ray start` has said about a node in golaunch's status."""
    try:
        said = json.loads(node["labels"].get(LABEL, "{}"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def address_of_auto():
    named = os.environ.get("GOLAUNCH_COORDINATOR")
    return named if named not in (None, "", "none") else started_here()


def hosts_here(session=None):
    """The names of the hosts on this machine, of one session or of all; the head's host is first.
    """
    found = []
    with open("/proc/net/unix") as f:
        for line in f:
            name = line.split()[-1][1:]
            if name.startswith(PREFIX) and re.fullmatch(r"[0-9a-f]+-h\d+", name[len(PREFIX):]) and name not in found:
                if session is None or name.startswith(session + "-h"):
                    found.append(name)
    return sorted(found, key=lambda name: int(name.rpartition("-h")[2]))


def asked(host, op, *args):
    """The answer of a host of this machine, or of the head of its session, to a program that is no
    driver; None if there is no answer.
    """
    try:
        sock = _wire.connect(host)
    except OSError:
        return None
    loop = _wire.Loop()
    got = []
    link = _wire.Connection(loop, sock, lambda *_: None, lambda _: loop.stop())
    link.ask(lambda value, error, _: (got.append(value if error is None else None), loop.stop()), op, *args)
    loop.later(_wire.CONNECT, loop.stop)
    loop.run()
    link.close()
    loop.close()
    return got[0] if got else None


def running(address):
    """A session on this machine that a driver may join, or None."""
    for name in hosts_here():
        session = asked(name, "session")
        if session is not None and address in ("auto", session["cluster"]):
            return session
    return None


def ask(address, op, *args):
    """The answer of the head of a cluster's session to a question such as "actors" or "nodes"; None
    if there is no session.
    """
    for name in hosts_here():
        session = asked(name, "session")
        if session is not None and (address in ("auto", session["cluster"]) or session["session"] == _session_of(address)):
            return asked(name, "of_head", op, *args)
    return None


def _session_of(address):
    """The name of the session of a cluster. Another program may have begun it with another address
    of the coordinator.
    """
    job = next((j for j in status(address)["jobs"] if _NAME.fullmatch(j["id"]) and "result" not in j), None)
    return job and job["command"].split()[-1]


def _golaunch(*args, env=None):
    from golaunch.binary import find_binary

    return subprocess.run([find_binary(), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **(env or {})})


def variables(values):
    """The golaunch flags that give a job its variables, the variables that golaunch itself needs
    for these flags, and the words that precede the job's command. Values are not on the command
    line, since all users can read it. A shell on the node sets the variables that golaunch itself
    would read, and those whose values name other variables, such as "${PATH}:/x".
    """
    own, lines = {}, []
    for name, value in values.items():
        if not _READ.fullmatch(name) and "$" not in value:
            own[name] = value
        elif _IDENTIFIER.fullmatch(name):
            lines.append(f"export {name}={_expanding(value)}")
        else:
            raise ValueError(f"env_vars: {name!r} is no name of a variable: letters, digits and _")
    before = ()
    if lines:
        own[_SETS] = "\n".join(lines)
        before = "sh", "-c", f'eval "${_SETS}"; unset {_SETS}; exec "$@"', "sh"
    return [word for name in own for word in ("--env", name)], own, before


def _expanding(value):
    """A text as a word for a shell, in which $NAME and ${NAME} are variables. As with Ray, ${NAME}
    of a missing variable becomes empty, and $NAME stays as it is.
    """
    parts = re.split(r"(\$\{\w+\}|\$\w+)", value, flags=re.ASCII)
    for i in range(1, len(parts), 2):
        name = parts[i].strip("${}")
        parts[i] = parts[i] if name[0].isdigit() else f'"${{{name}-}}"' if parts[i][1] == "{" else f'"${{{name}-\\${name}}}"'
    return "".join(shlex.quote(p) if p and not p.startswith('"${') else p for p in parts) or "''"


def complaint(said):
    """The complaint that a failed verb of golaunch has printed."""
    try:
        return json.loads(said.stderr.strip().splitlines()[-1])["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return said.stderr.strip().replace(f"golaunch {said.args[1]}: ", "", 1) or f"golaunch {said.args[1]} exited with {said.returncode}"


def status(address):
    """The status of a cluster, as `golaunch status` prints it."""
    said = _golaunch("status", "--coordinator", address, "--json", "--all")
    if said.returncode != 0:
        raise ConnectionError(f"address={address!r}: {complaint(said)}")
    return json.loads(said.stdout)


def spill_directory(named):
    """The directories for objects that do not fit into memory."""
    if os.environ.get("RAY_automatic_object_spilling_enabled", "1").lower() in ("0", "false"):
        return []
    return [os.path.realpath(named)] if named else [os.path.realpath(tempfile.gettempdir()), "/var/tmp"]


def session(address, object_store_memory, spill):
    """The session of a coordinator's cluster. It is begun if there is none."""
    until, submitted = time.monotonic() + _LIMIT, None
    while True:
        known = status(address)
        sessions = [j for j in known["jobs"] if _NAME.fullmatch(j["id"])]
        job = next((j for j in sessions if "result" not in j), None)
        mine = next((j for j in sessions if j["id"] == submitted), None)
        if job is None and mine is not None:
            raise ConnectionError(f"ray.init(address={address!r}): the job {submitted}, which is the session of the cluster, has ended: {mine['result']['reason']}")
        if job is None:
            submitted = f"ray-{os.getuid()}-{max([int(_NAME.fullmatch(j['id'])[1]) for j in sessions], default=0) + 1}"
            said = _submit(address, submitted, known["nodes"], object_store_memory, spill)
            if said is not None:
                if not any(j["id"] == submitted for j in status(address)["jobs"]):
                    raise ConnectionError(f"ray.init(address={address!r}): {said}")
                submitted = None  # another program was faster
            continue
        look = time.monotonic() + _LOOK
        while time.monotonic() < look:
            for name in hosts_here(job["command"].split()[-1]):
                found = asked(name, "session")
                if found is not None:
                    return found
            time.sleep(_STEP)
        if time.monotonic() > until:
            waits = f": {job['waits']}" if job.get("waits") else f", on {', '.join(job['nodes'])}" if job.get("nodes") else ""
            raise ConnectionError(
                f"ray.init(address={address!r}): the session of the cluster (job {job['id']}) has no process on this machine ({socket.gethostname()}) within "
                f"{_LIMIT:.0f} s{waits}; run the program on one of its nodes, and see golaunch logs {job['id']}")


def _submit(address, job, nodes, object_store_memory, spill):
    """Makes the cluster start the hosts. Returns the reason if that fails."""
    import secrets

    nodes = [n for n in nodes if n["state"] == "ready"]
    if not nodes:
        raise ConnectionError(f"ray.init(address={address!r}): the cluster has no node that is ready; start golaunch agent on each")
    with_gpus = [n for n in nodes if n["gpus"] > n["gpus_used"]]
    if with_gpus:
        ranks = ["--nodes", str(len(with_gpus)), "--gpus-per-node", ",".join(str(n["gpus"] - n["gpus_used"]) for n in with_gpus)]
    else:
        ranks = ["--nodes", str(len(nodes)), "--procs-per-node", "1"]
    if os.environ.get("RAY_preload_python_modules"):
        ranks += ["--preload", os.environ["RAY_preload_python_modules"]]
    name = PREFIX + secrets.token_hex(6)
    config = {
        "session": name, "job": job, "cluster": address, "certificate": _certificate(), "path": _paths(), "hosts": len(with_gpus or nodes), "gpus": bool(with_gpus),
        "nodes": {n["name"]: {"num_cpus": n["cpus"], "address": n["address"], "object_store_memory": object_store_memory, **described(n)} for n in nodes},
        "temp_dir": "/tmp/ray", "spill": spill,
    }
    said = _golaunch(
        "run", "--coordinator", address, "--detach", "--job-id", job, *ranks, "--restart", "rank", "--max-restarts", "1000", "--backoff", "1s:10s", "--grace", "5s",
        "--bind", "none", "--env-preset", "none", "--bundle", "off", "--dir", "/", "--env", VARIABLE, "--", sys.executable, "-c", _PROGRAM, name,
        env={VARIABLE: json.dumps(config)})
    return None if said.returncode == 0 else complaint(said)


def _paths():
    """The directories of the modules that a host needs."""
    import cloudpickle
    import golaunch

    paths = []
    for module in (sys.modules["ray"], golaunch, cloudpickle):
        path = os.path.dirname(os.path.dirname(os.path.abspath(module.__file__)))
        if path not in paths:
            paths.append(path)
    return paths


def _certificate():
    from golaunch.binary import find_binary

    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen([find_binary(), "_controller"], stdin=theirs, stdout=subprocess.DEVNULL)
        theirs.close()
        ours.settimeout(_LIMIT)
        ours.sendall(b'{"id":1,"do":"certificate"}\n')
        with ours.makefile() as lines:
            answer = json.loads(lines.readline() or '{"error": "golaunch has ended"}')
    process.wait(_LIMIT)
    if answer.get("error"):
        raise ConnectionError(f"no certificate for a session: {answer['error']}")
    return answer["value"]


def facts(node_id, node, first):
    """The resources of a node, from what is known about the node."""
    cpus, gpus = node.get("num_cpus"), node.get("num_gpus")
    resources = {"CPU": float((os.cpu_count() or 1) if cpus is None else cpus), f"node:{node['address']}": 1.0}
    for name in ("memory", "object_store_memory"):
        if node.get(name):
            resources[name] = float(node[name])
    if first:
        resources["node:__internal_head__"] = 1.0
    if gpus:
        resources["GPU"] = float(gpus)
    resources.update({name: float(amount) for name, amount in (node.get("resources") or {}).items()})
    return {"id": node_id, "ip": node["address"], "resources": {k: v for k, v in resources.items() if v}, "labels": dict(node.get("labels") or {}), "gpus": node.get("gpus")}


def hold(host):
    """Holds a GPU for a host of this node until the host says that the session is over, or does not
    come back.
    """
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        try:
            with _wire.connect(host) as sock:
                sock.settimeout(None)
                if sock.recv(1):
                    return
                until = time.monotonic() + _LIMIT
        except OSError:
            pass
        time.sleep(_LOOK)


class Store:
    """The job's store, by torch's protocol (TCPStore)."""

    def __init__(self):
        self._sock = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), _wire.CONNECT)
        self._sock.sendall(struct.pack("<BI", 0, 0x3C85F7CE))

    def set(self, key, value):
        self._sock.sendall(b"\1" + self._text(key) + self._text(value))
        self.get(key)  # which the store answers once it has done that

    def add(self, key, amount):
        """Adds a number to a key, and returns the sum."""
        self._sock.sendall(b"\4" + self._text(key) + struct.pack("<q", amount))
        return struct.unpack("<q", self._read(8))[0]

    def delete(self, key):
        self._sock.sendall(b"\x08" + self._text(key))
        self._read(8)

    def has(self, key):
        self._sock.sendall(b"\5" + struct.pack("<Q", 1) + self._text(key))
        return self._read(1) == b"\0"

    def get(self, key, limit=_LIMIT):
        """Waits until a key has a value, and returns the value."""
        self._sock.settimeout(limit)
        self._sock.sendall(b"\6" + struct.pack("<Q", 1) + self._text(key))
        self._read(1)
        self._sock.sendall(b"\3" + self._text(key))
        return self._read(struct.unpack("<Q", self._read(8))[0])

    @staticmethod
    def _text(value):
        value = value.encode() if isinstance(value, str) else value
        return struct.pack("<Q", len(value)) + value

    def _read(self, size):
        got = b""
        while len(got) < size:
            more = self._sock.recv(size - len(got))
            if not more:
                raise ConnectionError("the job's store has ended the connection")
            got += more
        return got
