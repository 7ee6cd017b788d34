"""Runs the requests of the tests with torchft's own extension, which needs no torch."""
import glob, importlib.util, os, sys, threading
from datetime import timedelta

where = sys.argv[1] if len(sys.argv) > 1 else importlib.util.find_spec("torchft").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("_torchft", glob.glob(os.path.join(where, "_torchft*.so"))[0])
torchft = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torchft)

minute = timedelta(seconds=60)
things = {}
lock = threading.Lock()


def say(*words):
    with lock:
        print(*words, flush=True)


def lighthouse(name, least, join_ms, beat_ms):
    things[name] = torchft.LighthouseServer(
        bind="127.0.0.1:0", min_replicas=int(least), join_timeout_ms=int(join_ms), quorum_tick_ms=10, heartbeat_timeout_ms=int(beat_ms)
    )
    say(name, things[name].address().rsplit(":", 1)[1])


def manager(name, url, size):
    things[name] = torchft.ManagerServer(
        replica_id=name, lighthouse_addr=url, hostname="127.0.0.1", bind="127.0.0.1:0", store_addr="127.0.0.1:1/" + name,
        world_size=int(size), heartbeat_interval=timedelta(milliseconds=100), connect_timeout=minute, quorum_retries=0,
    )
    things[name + "/client"] = torchft.ManagerClient(things[name].address(), connect_timeout=minute)
    say(name, "serves")


def step(name, rank, number, shrink, failures):
    client = things[name + "/client"]

    def run():
        try:
            more = {"reconfigure_handle": "handle of " + name} if len(sys.argv) > 1 else {}
            q = client._quorum(
                group_rank=int(rank), step=int(number), checkpoint_metadata="metadata", shrink_only=shrink == "1", timeout=minute,
                commit_failures=int(failures), init_sync=True, **more,
            )
            handles = ",".join(getattr(q, "reconfigure_handles", []) or []).replace(" ", "_")
            say(name, "quorum", q.quorum_id, ",".join(q.replica_ids), handles or "-")
        except Exception as e:
            say(name, "error", repr(e).replace("\n", " "))

    threading.Thread(target=run, daemon=True).start()


def ask(name, url, data):
    def run():
        try:
            q = torchft.LighthouseClient(url, connect_timeout=minute).quorum(name, minute, data={"note": data})
            say(name, "quorum", q.quorum_id, ",".join(p.replica_id for p in q.participants), [p.data for p in q.participants if p.replica_id == name][0]["note"])
        except Exception as e:
            say(name, "error", repr(e).replace("\n", " "))

    threading.Thread(target=run, daemon=True).start()


def close(name):
    for key in (name + "/client", name):
        thing = things.pop(key, None)
        if hasattr(thing, "shutdown"):
            thing.shutdown()
    say(name, "closed")


for line in sys.stdin:
    words = line.split()
    {"lighthouse": lighthouse, "manager": manager, "step": step, "ask": ask, "close": close}[words[0]](*words[1:])
