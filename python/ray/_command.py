"""The command `ray`: thin over golaunch's verbs."""

import argparse
import datetime
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile

from . import _nodes, _state, job_submission
from .job_submission import JobStatus, JobSubmissionClient

# Options of `ray start` that change nothing here.
_IGNORED = (
    "object-manager-port node-manager-port min-worker-port max-worker-port worker-port-list ray-client-server-port dashboard-agent-listen-port dashboard-agent-grpc-port "
    "runtime-env-agent-port plasma-directory object-spilling-directory temp-dir metrics-export-port include-log-monitor redis-shard-ports log-style log-color system-config").split()

_SILENT = 5.0  # seconds without output after which `ray job submit` says whether the job waits


def _boolean(text):
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r}: true or false")


def _object(text):
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return value


def _labels(text):
    if text.startswith("{"):
        return _object(text)
    pairs = [p.partition("=") for p in text.split(",")]
    if not all(sep for _, sep, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: KEY=VALUE,...")
    return {key: value for key, _, value in pairs}


def _say(text=""):
    print(text, flush=True)


def _framed(text):
    for line in ("-" * len(text), text, "-" * len(text)):
        _say(line)


# ray start, stop, status


def _start(o):
    if not o.head and o.address is None:
        raise _nodes.Failed("`--address` is a required flag unless starting a head node with `--head`.")
    if o.head and o.address is not None:
        raise _nodes.Failed("`--head` and `--address` exclude each other: a head starts a cluster of its own.")
    if o.block:
        signal.pthread_sigmask(signal.SIG_BLOCK, _nodes.ENDS)
    own, address, dashboard, started = _nodes.start(o)
    _say(f"Local node IP: {own}")
    _say()
    _framed("Ray runtime started.")
    if o.head:
        _say()
        _say("Next steps")
        _say("  To add another node to this Ray cluster, run")
        _say(f"    ray start --address='{address}'")
        _say("  To connect to this Ray cluster:")
        _say("    import ray")
        _say("    ray.init()")
        _say("  To submit a Ray job using the Ray Jobs CLI:")
        _say(f"    RAY_API_SERVER_ADDRESS='{'http://' + dashboard if dashboard else address}' ray job submit --working-dir . -- python my_script.py")
        _say()
    _say("To terminate the Ray runtime, run")
    _say("  ray stop")
    if not o.block:
        return 0
    _say()
    _say("--block")
    _say("  This command will now block forever until terminated by a signal.")
    return _nodes.block(started)


def _stop(o):
    count, alive = _nodes.Processes().stop(o.force)
    if alive:
        what = ", ".join(f"{p['what']} (pid {p['pid']})" for p in alive)
        _say(f"Stopped only {count - len(alive)} out of {count} Ray processes within the grace period. Set `-f` to force kill: {what}.")
        return 1
    _say(f"Stopped all {count} Ray processes." if count else "Did not find any active Ray processes.")
    return 0


def _status(o):
    _say(_state.status(job_submission.coordinator(o.address)))
    return 0


# ray job


def _client(o):
    client = JobSubmissionClient(o.address)
    _say(f"Job submission server address: {client.get_address()}")
    return client


def _ended(client, job):
    info = client.get_job_info(job)
    if info.status == JobStatus.SUCCEEDED:
        _framed(f"Job '{job}' succeeded")
    elif info.status == JobStatus.STOPPED:
        _say(f"Job '{job}' was stopped")
    elif info.status == JobStatus.FAILED:
        _framed(f"Job '{job}' failed")
        _say(f"Status message: {info.message}")
    else:
        _say(f"Status for job '{job}': {info.status}")
        if info.message:
            _say(f"Status message: {info.message}")
    return info.status


def _submit(o):
    env = {}
    if o.runtime_env is not None and o.runtime_env_json is not None:
        raise _nodes.Failed("Only one of --runtime_env and --runtime-env-json can be provided.")
    if o.runtime_env is not None:
        try:
            import yaml
        except ImportError:
            raise _nodes.Failed("--runtime-env reads YAML, for which this Python has no module: pip install pyyaml, or use --runtime-env-json") from None
        with open(o.runtime_env) as f:
            env = yaml.safe_load(f) or {}
    elif o.runtime_env_json is not None:
        env = o.runtime_env_json
    if o.working_dir is not None:
        env["working_dir"] = o.working_dir
    if not o.entrypoint:
        raise _nodes.Failed("Missing argument 'ENTRYPOINT...'.")
    client = _client(o)
    job = client.submit_job(
        entrypoint=shlex.join(o.entrypoint), submission_id=o.submission_id, runtime_env=env, metadata=o.metadata_json, entrypoint_num_cpus=o.entrypoint_num_cpus,
        entrypoint_num_gpus=o.entrypoint_num_gpus, entrypoint_memory=o.entrypoint_memory, entrypoint_resources=o.entrypoint_resources)
    _say()
    _framed(f"Job '{job}' submitted successfully")
    _say()
    _say("Next steps")
    for what, verb in (("Query the logs of the job", "logs"), ("Query the status of the job", "status"), ("Request the job to be stopped", "stop")):
        _say(f"  {what}:")
        _say(f"    ray job {verb} {job}")
    _say()
    if o.no_wait:
        return 0
    _say("Tailing logs until the job exits (disable with --no-wait):")
    _follow(client, job)
    return 0 if _ended(client, job) == JobStatus.SUCCEEDED else 1


def _follow(client, job):
    with client.follow(job) as process:
        try:
            if not select.select([process.stdout], [], [], _SILENT)[0]:
                info = client.get_job_info(job)
                if info.status == JobStatus.PENDING:
                    print(f"Status for job '{job}': {info.status}\nStatus message: {info.message}", file=sys.stderr, flush=True)
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
        except BaseException:
            process.terminate()
            raise


def _job_status(o):
    _ended(_client(o), o.job)
    return 0


def _job_stop(o):
    client = _client(o)
    _say(f"Attempting to stop job '{o.job}'")
    client.stop_job(o.job)
    if not o.no_wait:
        _say(f"Waiting for job '{o.job}' to exit (disable with --no-wait):")
        _ended(client, o.job)
    return 0


def _job_logs(o):
    client = _client(o)
    if o.follow:
        _follow(client, o.job)
        _ended(client, o.job)
    else:
        sys.stdout.write(client.get_job_logs(o.job))
    return 0


def _job_list(o):
    jobs = _client(o).list_jobs()
    _say("[" + ",\n ".join(map(repr, jobs)) + "]")
    return 0


# ray list, get, summary


def _resource(name):
    return name.replace("-", "_")


def _selected(o, what, detail):
    rows, total = _state.selected(what, _state.rows(job_submission.coordinator(o.address), what), [_state.predicate(f) for f in o.filter or ()], o.limit, detail)
    if total > len(rows):
        print(f"The first {len(rows)} of {total} entries: use --filter to select some, or a higher --limit.", file=sys.stderr)
    return rows


def _list(o):
    what = _resource(o.what)
    rows = _selected(o, what, o.detail)
    if not rows:
        _say("No resource in the cluster")
    elif o.format == "json":
        _say(json.dumps(rows))
    elif o.format == "yaml":
        _yaml(rows)
    else:
        _titled(f"List: {datetime.datetime.now()}")
        _say("-" * 30)
        _say(f"Total: {len(rows)}")
        _say()
        _say("Table:")
        _say("-" * 30)
        basic, more = _state.COLUMNS[what]
        _say(_table(basic + (more if o.detail else []), rows))
        _say()
    return 0


def _titled(title):
    _say()
    _say(f"======== {title} ========")
    _say("Stats:")


def _yaml(rows):
    try:
        import yaml
    except ImportError:
        raise _nodes.Failed("--format yaml needs a module that this Python does not have: pip install pyyaml, or use --format json") from None
    _say(yaml.dump(rows, indent=4, explicit_start=True, explicit_end=True, sort_keys=False))


def _get(o):
    what = _resource(o.what)
    key = _state.COLUMNS[what][0][0]
    found, _ = _state.selected(what, _state.rows(job_submission.coordinator(o.address), what), [(key, "=", o.id)])
    if not found:
        _say(f"Resource with id={o.id} not found in the cluster.")
    else:
        _yaml(found)
    return 0


def _summary(o):
    made = _state.summary(o.what, _state.rows(job_submission.coordinator(o.address), o.what))
    _titled(f"{o.what.capitalize()} Summary: {datetime.datetime.now()}")
    _say("-" * 36)
    for name in sorted(n for n in made if n.startswith("total")):
        _say(f"{name}: {made[name]}")
    _say("\n")
    _say(f"Table (group by {made['summary_by']}):")
    _say("-" * 36)
    rows = list(made["summary"].values())
    if rows:
        _say(_table(sorted(rows[0]), rows))
    _say()
    return 0


def _cell(name, value):
    if isinstance(value, dict):
        return [f"{k}: {_state._size(v) if k in _state._BYTES else v}" for k, v in sorted(value.items())] or [""]
    return str("" if value is None else value).split("\n")


def _table(columns, rows):
    cells = [[_cell(c, r.get(c)) for c in columns] for r in rows]
    widths = [max([len(c), *(len(line) for row in cells for line in row[i])]) for i, c in enumerate(columns)]
    index = len(str(len(rows) - 1))
    lines = [" " * index + "  " + "  ".join(c.upper().ljust(w) for c, w in zip(columns, widths))]
    for n, row in enumerate(cells):
        for k in range(max(map(len, row))):
            parts = [(cell[k] if k < len(cell) else "").ljust(w) for cell, w in zip(row, widths)]
            lines.append((str(n).rjust(index) if k == 0 else " " * index) + "  " + "  ".join(parts))
    return "\n".join(line.rstrip() for line in lines)


# ray stack, timeline


def _stack(o):
    coordinator = job_submission.coordinator(o.address)
    running = [j["id"] for j in json.loads(job_submission.run("jobs", "--coordinator", coordinator, "--json"))["jobs"]]
    if not running:
        _say("No job of the cluster runs.")
    code = 0
    from golaunch.binary import find_binary

    for job in running:
        code = subprocess.run([find_binary(), "stacks", "--coordinator", coordinator, job]).returncode or code
    return code


def _timeline(o):
    fd, path = tempfile.mkstemp(prefix=f"ray-timeline-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}-", suffix=".json")
    with os.fdopen(fd, "w") as f:
        json.dump(_state.timeline(job_submission.coordinator(o.address)), f)
    _say(f"Trace file written to {path}.")
    _say("You can open this with chrome://tracing in the Chrome browser.")
    return 0


_UNSERVED = {
    "attach": "ssh", "check-open-ports": "golaunch doctor", "cluster-dump": "golaunch logs, and golaunch report", "cpp": "ray.remote in Python", "dashboard": "golaunch dashboard",
    "debug": "ray stack", "down": "ray stop on each machine", "drain-node": "golaunch swap", "enable-usage-stats": "golaunch metrics: golaunch sends no statistics",
    "exec": "ssh", "get-auth-token": "golaunch submit-token", "get-head-ip": "golaunch status", "get-worker-ips": "golaunch status", "health-check": "ray status",
    "kill-actor": "ray.kill", "logs": "ray job logs, and golaunch logs", "memory": "ray status", "metrics": "golaunch metrics",
    "microbenchmark": "python/bench/ray_core.py of golaunch", "monitor": "golaunch top", "rsync-down": "scp", "rsync-up": "ray job submit --working-dir",
    "submit": "ray job submit", "symmetric-run": "ray start on each machine, and ray job submit", "up": "golaunch agent on each machine",
}


def _refuse(what, instead):
    def refuse(_):
        raise NotImplementedError(f"golaunch does not serve `ray {what}`; use {instead}")
    return refuse


def _version(_):
    from . import __version__

    _say(f"ray, version {__version__} (golaunch-ray)")
    return 0


def _verb(under, name, do, words):
    p = under.add_parser(name, help=words, description=words, allow_abbrev=False)
    p.set_defaults(do=do)
    return p


def _address(p):
    p.add_argument("--address", help="HOST:PORT of the cluster, or http://HOST:8265 of its dashboard (RAY_ADDRESS)")


def _add_nodes(verbs):
    p = _verb(verbs, "start", _start, "start a node of a cluster on this machine")
    p.add_argument("--head", action="store_true", help="start a cluster, with this node as its head")
    p.add_argument("--address", help="HOST:PORT of the head of the cluster to join")
    p.add_argument("--port", type=int, help=f"port of the head ({job_submission.PORT}); 0 for a free one")
    p.add_argument("--node-ip-address", help="address of this node")
    p.add_argument("--node-name", help=argparse.SUPPRESS)
    p.add_argument("--num-cpus", type=int, help="CPUs of this node (those that it has)")
    p.add_argument("--num-gpus", type=int, help="GPUs of this node (those that it has)")
    p.add_argument("--memory", type=int, help="bytes for tasks and actors")
    p.add_argument("--object-store-memory", type=int, help="bytes for objects (30 %% of what is free)")
    p.add_argument("--resources", type=_object, help='custom resources, such as \'{"a": 1}\'')
    p.add_argument("--labels", type=_labels, help="KEY=VALUE,... of this node")
    p.add_argument("--block", action="store_true", help="stay until a signal, and end the node then")
    p.add_argument("--include-dashboard", type=_boolean, help="serve what scripts read of Ray's dashboard (true)")
    p.add_argument("--dashboard-host", default="127.0.0.1", help="address of that (127.0.0.1)")
    p.add_argument("--dashboard-port", type=int, default=8265, help="port of that (8265)")
    for name in ("disable-usage-stats", "ray-debugger-external", "no-redirect-output", "verbose"):
        p.add_argument("--" + name, action="store_true", help=argparse.SUPPRESS)
    for name in _IGNORED:
        p.add_argument("--" + name, help=argparse.SUPPRESS)
    p = _verb(verbs, "stop", _stop, "end what `ray start` has started on this machine")
    p.add_argument("-f", "--force", action="store_true", help="kill it at once")
    p.add_argument("-g", "--grace-period", help=argparse.SUPPRESS)
    _verb(verbs, "disable-usage-stats", lambda _: 0, "change nothing: golaunch sends no statistics")
    p = _verb(verbs, "status", _status, "print the nodes and resources of a cluster")
    _address(p)
    p.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def _add_jobs(verbs):
    jobs = _verb(verbs, "job", None, "submit and watch jobs").add_subparsers(dest="job_verb", metavar="VERB", required=True)
    p = _verb(jobs, "submit", _submit, "run a command once on the head of a cluster")
    _address(p)
    p.add_argument("--submission-id", "--job-id", help="id of the job")
    p.add_argument("--runtime-env", help="YAML file with a runtime_env")
    p.add_argument("--runtime-env-json", type=_object, help="a runtime_env as JSON")
    p.add_argument("--working-dir", help="directory that travels, in which the command runs")
    p.add_argument("--metadata-json", type=_object, help="texts about the job as JSON")
    p.add_argument("--entrypoint-num-cpus", type=float, help=argparse.SUPPRESS)
    p.add_argument("--entrypoint-num-gpus", type=float, help=argparse.SUPPRESS)
    p.add_argument("--entrypoint-memory", type=int, help=argparse.SUPPRESS)
    p.add_argument("--entrypoint-resources", type=_object, help=argparse.SUPPRESS)
    p.add_argument("--no-wait", action="store_true", help="do not wait for the job")
    for name in ("verify", "headers", "log-style", "log-color"):
        p.add_argument("--" + name, help=argparse.SUPPRESS)
    p.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("entrypoint", nargs=argparse.REMAINDER, help="the command, after --")
    for name, do, words in (("status", _job_status, "print how a job is"), ("stop", _job_stop, "stop a job"), ("logs", _job_logs, "print what a job has printed")):
        p = _verb(jobs, name, do, words)
        _address(p)
        p.add_argument("job", metavar="JOB_ID")
        if name == "stop":
            p.add_argument("--no-wait", action="store_true", help="do not wait for its end")
        if name == "logs":
            p.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    _address(_verb(jobs, "list", _job_list, "print all jobs"))
    p = _verb(jobs, "delete", _refuse("job delete", "golaunch jobs: the oldest of 1,000 is forgotten by itself"), "not served")
    p.add_argument("job", nargs="*", help=argparse.SUPPRESS)


def _add_state(verbs):
    resources = [what.replace("_", "-") for what in _state.COLUMNS]
    p = _verb(verbs, "list", _list, "print the nodes, actors, tasks, jobs or placement groups of a cluster")
    p.add_argument("what", choices=resources)
    _address(p)
    p.add_argument("--format", choices=["default", "table", "json", "yaml"], default="default")
    p.add_argument("-f", "--filter", action="append", help="KEY=VALUE or KEY!=VALUE; repeat it for more")
    p.add_argument("--limit", type=int, default=100)
    p.add_argument("--detail", action="store_true", help="print more of each")
    p.add_argument("--timeout", help=argparse.SUPPRESS)
    p = _verb(verbs, "get", _get, "print all of a node, an actor, a task or a placement group")
    p.add_argument("what", choices=[what for what in resources if what != "jobs"])
    p.add_argument("id")
    _address(p)
    p.add_argument("--timeout", help=argparse.SUPPRESS)
    p = _verb(verbs, "summary", _summary, "count the tasks or actors of a cluster by their states")
    p.add_argument("what", choices=["tasks", "actors"])
    _address(p)
    p.add_argument("--timeout", help=argparse.SUPPRESS)
    _address(_verb(verbs, "timeline", _timeline, "write a Chrome trace of the tasks that are over"))
    _address(_verb(verbs, "stack", _stack, "print the Python stacks of what runs"))


def _add_unserved(verbs):
    for name, instead in _UNSERVED.items():
        p = _verb(verbs, name, _refuse(name, instead), "not served")
        p.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _parser():
    parser = argparse.ArgumentParser(prog="ray", description="Ray's command on golaunch: docs/from-ray.md of golaunch lists what it serves.")
    parser.add_argument("--version", action="store_const", dest="do", const=_version)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for add in (_add_nodes, _add_jobs, _add_state, _add_unserved):
        add(verbs)
    return parser


def main(args=None):
    args = sys.argv[1:] if args is None else args
    if args and args[0] == "start":  # as in Ray, options may be written with underscores
        args = [re.sub(r"^--[^=]+", lambda m: m[0].replace("_", "-"), a) for a in args]
    parser = _parser()
    o = parser.parse_args(args)
    if o.verb == "job" and getattr(o, "entrypoint", None) and o.entrypoint[0] == "--":
        o.entrypoint = o.entrypoint[1:]
    if getattr(o, "do", None) is None:
        parser.print_help()
        return 0
    try:
        return o.do(o)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (_nodes.Failed, ConnectionError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}" if not isinstance(error, _nodes.Failed) else f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
