"""The cluster that this process uses."""

import os
import socket
import sys
import threading
import time

from . import exceptions as errors

_lock = threading.RLock()
_core = None
_cluster = None  # the golaunch cluster that this driver has started, or the driver's reservation
_namespace = ""
_env_of_job = {}
_config = None  # set in a worker
_JOIN = 60.0  # seconds in which all nodes must have joined
_AGAIN = 0.1  # seconds
_fork = False  # set in a process with a cluster
_pending = []  # set by ray.cluster_utils: the description of a cluster, which starts at init


def _forked():
    """In a child after a fork: the cluster belongs to the parent."""
    global _core, _cluster, _config, _lock, _fork
    _lock = threading.RLock()
    if _core is not None:
        _core.forked()
        _core = _cluster = _config = None
        _fork = True


os.register_at_fork(after_in_child=_forked)


def core():
    """The core of this process. Outside of a cluster, it starts a local cluster, as Ray does."""
    if _core is None:
        with _lock:
            if _fork:
                raise errors.RaySystemError("this process is a fork of one that uses a cluster, which it cannot use: call ray.init in it, or start it as a program of its own")
            if _core is None:
                if os.environ.get("RAY_ENABLE_AUTO_CONNECT", "1") == "0":
                    raise errors.RaySystemError("Ray has not been started yet. You can start Ray with 'ray.init()'.")
                init()
    return _core


def initialized():
    return _core is not None


class _Over(errors.RaySystemError):
    """The session is just ending."""


def namespace():
    return _namespace


def env_of_job():
    return _env_of_job


def task_id():
    if _config is None:
        return None
    from ._worker import current

    running = current.get()
    return running.id if running is not None else None


def group_of_task():
    """The placement group of the running task or actor, as a strategy."""
    if _config is None:
        return None
    from ._worker import current

    running = current.get()
    if running is not None and running.group is not None:
        return running.group
    return _core.executor.group


def inside(new, config):
    """Notes that this process runs tasks."""
    global _core, _namespace, _env_of_job, _config
    _core, _namespace, _config = new, config["job"]["namespace"], config
    _env_of_job = config["env"] if config["env"].get("key") else {}


def init(address=None, *, num_cpus=None, num_gpus=None, resources=None, labels=None, object_store_memory=None, local_mode=False, ignore_reinit_error=False,
         include_dashboard=None, dashboard_host=None, dashboard_port=None, job_config=None, configure_logging=True, logging_level=None, logging_format=None,
         logging_config=None, log_to_driver=True, namespace=None, runtime_env=None, enable_resource_isolation=False, system_reserved_cpu=None,
         system_reserved_memory=None, storage=None, object_spilling_directory=None, **kwargs):
    """Starts a cluster on this machine, or joins one. address is "auto", "HOST:PORT" or
    "ray://HOST:PORT" of a golaunch coordinator, or the address of a cluster that another program of
    this machine has started. Without an address, init joins the cluster of `ray start`. "local"
    always starts a cluster.
    """
    global _fork
    for name in kwargs:
        if not name.startswith("_"):
            raise RuntimeError(f"Unknown keyword argument(s): {name}")
    if local_mode:
        raise NotImplementedError("golaunch does not serve local_mode; use plain calls of the functions")
    if enable_resource_isolation or system_reserved_cpu is not None or system_reserved_memory is not None:
        raise NotImplementedError("golaunch does not serve enable_resource_isolation; use golaunch's limits of a job's memory and CPUs")
    for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
        if value is not None and value < 0:
            raise ValueError(f"{name}={value}: 0 or more")
    with _lock:
        if initialized():
            if ignore_reinit_error or _config is not None:
                return context()
            raise RuntimeError("Maybe you called ray.init twice by accident? This error can be suppressed by passing in 'ignore_reinit_error=True' or by calling "
                               "'ray.shutdown()' prior to 'ray.init()'.")
        from . import _cluster as on_cluster
        from . import _options, _package

        env = _options.environment(_of_submission(runtime_env))
        if env.get("working_dir"):
            env["archive"] = _package.read(env["working_dir"])
        spill = on_cluster.spill_directory(object_spilling_directory)
        address = address or os.environ.get("RAY_ADDRESS") or on_cluster.started_here()
        if address == "local":
            address = None
        if address is not None and (num_cpus is not None or num_gpus is not None or resources is not None):
            raise ValueError("When connecting to an existing cluster, num_cpus, num_gpus and resources must not be provided.")
        if address is not None:
            address = address[6:] if address.startswith("ray://") else address
            described = next((c for c in _pending if c.address == address), None)
            if described is not None:
                _join(described._begin(), namespace, log_to_driver, env)
            else:
                _join_cluster(address, object_store_memory, spill, namespace, log_to_driver, env)
        else:
            _join(_start([{"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels, "object_store_memory": object_store_memory,
                          "memory": kwargs.get("_memory")}], spill),
                  namespace, log_to_driver, env)
        _fork = False
    import atexit

    atexit.register(shutdown)
    return context()


def _join_cluster(address, object_store_memory, spill, namespace, log_to_driver, env):
    from . import _cluster

    until = time.monotonic() + _JOIN
    while True:
        found = _cluster.running(address)
        if found is None:
            cluster = _cluster.address_of_auto() if address == "auto" else address
            if not cluster:
                raise ConnectionError("Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag or `RAY_ADDRESS` environment "
                                      "variable; for a golaunch cluster, GOLAUNCH_COORDINATOR.")
            if ":" not in cluster:
                raise ValueError(f"address={cluster!r}: HOST:PORT of a golaunch coordinator, or \"auto\"")
            found = _cluster.session(cluster, object_store_memory, spill)
        try:
            _join(found, namespace, log_to_driver, env)
            return
        except (_Over, OSError):  # the session is just ending, since no driver needed it
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN)


def _visible_gpus():
    """The GPUs that this program may use, if its environment limits them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    return [] if visible in ("", "NoDevFiles") else visible.split(",")


def _start(nodes, spill):
    """Starts hosts on nodes of this machine."""
    import secrets

    from golaunch.cluster import VirtualCluster
    from golaunch.group import WorkerGroup

    from ._cluster import PREFIX, facts

    global _cluster
    visible = _visible_gpus()
    for node in nodes:
        if visible is not None and (node.get("num_gpus") or 0) > len(visible):
            raise ValueError(f"Attempting to start raylet with {node['num_gpus']} GPU, but CUDA_VISIBLE_DEVICES contains {visible}.")
    session = PREFIX + secrets.token_hex(6)
    cluster = VirtualCluster([1] * len(nodes), address="none")
    try:
        certificate = cluster._helper.ask("certificate") if len(nodes) > 1 else None
        described = []
        for i, node in enumerate(nodes):
            gpus = cluster._helper.ask("gpus") if node.get("num_gpus") is None else visible and visible[:int(node["num_gpus"])]
            node = {**node, "address": cluster.nodes[i]["address"]}
            if gpus is not None:
                node.update(num_gpus=len(gpus), gpus=gpus if visible is None else [str(g) for g in gpus])  # the values are texts, as in Ray
            described.append(facts(os.urandom(28).hex(), node, i == 0))
        config = {"session": session, "nodes": described, "certificate": certificate, "temp_dir": "/tmp/ray", "spill": spill, "cluster": cluster.address, "job": None, "hosts": len(nodes)}
        group = WorkerGroup(
            cluster, "ray._host:Host", config, workers_per_node=1, name=session, restart="worker", max_restarts=1000,
            use_gpus=False, show_output=True, preload=os.environ.get("RAY_preload_python_modules"))
        hosts = [tuple(a) for a in group.run_all_workers_single_data("address").result()]
        for rank in range(1, len(hosts)):
            group.run_single_worker_single_data("join", rank, hosts[0]).result()
    except BaseException:
        cluster.close()
        raise
    _cluster = cluster
    return {"session": session, "head": hosts[0], "certificate": certificate, "hosts": hosts, "cluster": cluster.address}


def _join(found, namespace, log_to_driver, env):
    import secrets
    import uuid

    from . import _options, _package, _wire
    from ._core import Core, guard

    global _core, _namespace, _env_of_job
    head = tuple(found["head"])
    host, sock = _host_here(found["hosts"])
    proc = f"{found['session']}-d{secrets.token_hex(4)}"
    address = (proc, host[1], host[2], host[3])
    made = Core(found["session"], address, head, host, found["certificate"], None, found["cluster"])
    made.listen(_wire.listen(proc))
    made.printed = _print
    made.host = _wire.Connection(made.loop, sock, made._message, made._lost)
    made.host.peer = host[0]
    made.links[host[0]] = made.host
    if host == head:
        made._head = made.host
    made.start()
    guard(True)
    made.host.send("hello", proc)
    _namespace = namespace or str(uuid.uuid4())
    main = sys.modules.get("__main__")
    path = [os.path.abspath(p) for p in sys.path]
    try:
        facts = {"path": path, "main": getattr(main, "__file__", None), "log": log_to_driver, "dir": os.getcwd(), "python": sys.executable}
        try:
            job, _ = made.ask(made.head, "driver", address, _namespace, facts, timeout=_JOIN)
        except errors.GetTimeoutError:
            raise ConnectionError(f"not all nodes of the session {found['session']} have joined it within {_JOIN:.0f} s: golaunch status shows its job, and golaunch logs why") from None
        if job is None:
            raise _Over("the session of the cluster ends")
        if "archive" in env:
            env = _options.with_package(env, _package.put(made, env["archive"]))
    except BaseException:
        made.close()
        guard(False)
        shutdown()
        raise
    made.job = {"id": job, "driver": address, "namespace": _namespace, **facts}
    _env_of_job = env if env.get("key") else {}
    _core = made


def _of_submission(runtime_env):
    """A runtime_env, with the one of this job's submission merged into it."""
    said = os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR")
    if not said:
        return runtime_env
    import json

    try:
        return {**(json.loads(said).get("runtime_env") or {}), **(runtime_env or {})}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"RAY_JOB_CONFIG_JSON_ENV_VAR={said!r} is no JSON object with a runtime_env: {error}") from None


def working_dir():
    """The working directory that is sent with this program, or None."""
    if _config is not None:
        return _core.directory
    here = env_of_job().get("working_dir") or (_of_submission(None) or {}).get("working_dir")
    return here and os.path.abspath(here)


def _host_here(hosts):
    """The host of this machine and a connection to it: the host holds a driver's objects."""
    from . import _wire

    for host in hosts:
        try:
            return tuple(host), _wire.connect(host[0])
        except OSError:
            pass
    raise ConnectionError(f"this machine ({socket.gethostname()}) is no node of the cluster: run the program on one of {', '.join(h[2] for h in hosts)}")


def _print(out, text):
    stream = sys.stdout if out == "out" else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except (ValueError, OSError):
        pass


def shutdown(_exiting_interpreter=False):
    """Leaves the cluster, and ends it if this program has started it."""
    global _core, _cluster
    with _lock:
        if _config is not None:
            return
        leaving, _core = _core, None
        cluster, _cluster = _cluster, None
    if leaving is not None:
        from ._core import guard

        leaving.close()
        guard(False)
    if cluster is not None:
        cluster.close()


class Context:
    """What ray.init returns."""

    def __init__(self, info):
        self.address_info = info
        self.dashboard_url, self.python_version, self.ray_version, self.ray_commit = "", ".".join(map(str, sys.version_info[:3])), "2.60.0", ""

    def __getitem__(self, key):
        return self.address_info[key]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutdown()

    def disconnect(self):
        shutdown()


def context():
    c = _core
    return Context({
        "node_ip_address": c.address[2], "node_id": c.node_id, "address": c.cluster, "gcs_address": c.cluster, "session_dir": "", "webui_url": None, "raylet_socket_name": None,
        "object_store_address": None,
    })
