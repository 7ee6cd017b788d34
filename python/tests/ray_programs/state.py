"""The state API and the command: tasks that are over, that run and that wait."""

import json
import os
import subprocess
import sys
import time

import ray
from ray.util import state


def say(*what):
    print("=", *what, flush=True)


def command(*args):
    out = subprocess.run([sys.executable, "-c", "import sys; from ray import __version__\ntry: from ray._command import main\nexcept ImportError: from ray.scripts.scripts import main\nsys.exit(main())", *args],
                         capture_output=True, text=True)
    return out.returncode, out.stdout


ray.init(num_cpus=2, include_dashboard=True, log_to_driver=False)


@ray.remote
def f(x):
    if x == 2:
        raise ValueError("two")
    return x


@ray.remote
def outer():
    return ray.get(f.options(name="inner").remote(7))


@ray.remote(max_retries=1)
def dies():
    time.sleep(0.1)
    os._exit(3)


@ray.remote
class A:
    def m(self):
        return 1

    def bad(self):
        raise KeyError("k")


@ray.remote
class Never:
    def __init__(self):
        time.sleep(1000)

    def m(self):
        pass


@ray.remote
def slow():
    time.sleep(1000)


@ray.remote(num_cpus=100)
def never():
    pass


refs = [f.options(name="named").remote(i) for i in range(3)]
ray.wait(refs, num_returns=3)
a = A.options(name="a").remote()
ray.get(a.m.remote())
ray.wait([a.bad.remote()])
ray.wait([dies.remote()])
ray.get(outer.remote())  # whose process lives on to tell of it
s, n, w = slow.remote(), never.remote(), Never.remote()
waits, wanted = f.remote(s), w.m.remote()
end = time.monotonic() + 60
while True:
    tasks = state.list_tasks(detail=True)
    states = {t.name: t.state for t in tasks}
    if len(tasks) == 15 and states["slow"] == states["Never.__init__"] == "RUNNING" and (states["inner"] == "FINISHED" or time.monotonic() > end):
        break
    assert time.monotonic() < end, states
    time.sleep(0.1)

by_id = {t.task_id: t.name for t in tasks}
for t in sorted(tasks, key=lambda t: (t.type, t.name, t.attempt_number, t.state)):
    ran = None if t.start_time_ms is None or t.end_time_ms is None else t.creation_time_ms <= t.start_time_ms <= t.end_time_ms
    say(t.type, t.name, t.func_or_class_name, t.attempt_number, t.state, t.error_type, t["job_id"], t.actor_id is None, by_id.get(t.parent_task_id), t.type == "NORMAL_TASK" and t.required_resources, ran)
say({t.node_id for t in tasks} <= {None, ray.get_runtime_context().get_node_id()})
say(len(state.list_tasks(limit=4)), sorted(t.name for t in state.list_tasks(filters=[("state", "=", "failed")])), state.list_tasks(filters=[("NAME", "=", "none")]))
say({(t.type, t.job_id) for t in state.list_tasks(filters=[("state", "!=", "FAILED"), ("type", "=", "NORMAL_TASK")])}, state.list_tasks(limit=1)[0].language)
say(state.get_task(s).state, state.get_task("ff" * 24), [t.state for t in state.get_task(next(t.task_id for t in tasks if t.name == "dies"))])
summary = state.summarize_tasks()["cluster"]
say(summary["summary"]["named"], summary["total_tasks"], summary["total_actor_tasks"], summary["total_actor_scheduled"], summary["summary_by"])
say([(x.class_name, x.state, x.name) for x in sorted(state.list_actors(), key=lambda x: x.class_name)], state.summarize_actors()["cluster"]["total_actors"])
alive, = state.list_actors(filters=[("state", "=", "ALIVE")], detail=True)
say(alive.pid > 0, alive.is_detached, alive.num_restarts, alive.required_resources, state.get_actor(alive.actor_id).class_name, state.get_actor("0" * 32))
node, = state.list_nodes()
say(node.state, node.is_head_node, node.resources_total["CPU"], state.get_node(node.node_id).node_ip == node.node_ip)

code, out = command("list", "tasks", "--format", "json", "--filter", "state=FAILED", "-f", "type!=ACTOR_TASK", "--limit", "10")
say(code, sorted((t["name"], t["error_type"], t["events"]) for t in json.loads(out)))
code, out = command("list", "tasks", "-f", "NAME=slow")
lines = out.splitlines()
say(code, lines[2:7], [lines[8].split(), lines[9].split()[2:5]])
say(command("list", "tasks", "--filter", "name=none"), command("list", "tasks", "--filter", "bogus=1")[0] != 0, command("list", "tasks", "--filter", "name")[0])
code, out = command("summary", "tasks")
say(code, out.splitlines()[2:9], sorted(line.split()[1:] for line in out.splitlines() if " named " in line))

spans = [e for e in ray.timeline() if e["cat"].startswith("task::")]
say({e["ph"] for e in spans}, sorted({e["cat"] for e in spans}), all(e["dur"] > 0 for e in spans), sorted(spans[0]))
ray.timeline(os.devnull)
ray.shutdown()
