"""A replica group of one rank, with torchft's own manager and no torch.

It takes part in quorums for as many steps as its argument says. A group that starts again first
reads a line from the FIFO that HOLD names, if any.
"""
import glob, importlib.util, os, sys, time, uuid
from datetime import timedelta

if "HOLD" in os.environ and os.environ["GOLAUNCH_ATTEMPT"] != "0":
    with open(os.environ["HOLD"]) as fifo:
        fifo.readline()

where = importlib.util.find_spec("torchft").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("_torchft", glob.glob(os.path.join(where, "_torchft*.so"))[0])
torchft = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torchft)

group = os.environ["REPLICA_GROUP_ID"]
size = os.environ["WORLD_SIZE"]
store = os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]
manager = torchft.ManagerServer(
    replica_id=f"train_{group}:{uuid.uuid4()}", lighthouse_addr=os.environ["TORCHFT_LIGHTHOUSE"], hostname="127.0.0.1",
    bind="127.0.0.1:0", store_addr=store, world_size=1, heartbeat_interval=timedelta(milliseconds=100),
    connect_timeout=timedelta(seconds=60), quorum_retries=0,
)
client = torchft.ManagerClient(manager.address(), connect_timeout=timedelta(seconds=60))
print(f"group {group} pid {os.getpid()} rank {os.environ['RANK']} of {size} store {store} arguments {sys.argv[2:]}", flush=True)
steps, step, last, before = int(sys.argv[1]), 0, 0, time.monotonic()
while step < steps:
    q = client._quorum(
        group_rank=0, step=step, checkpoint_metadata="", shrink_only=False, timeout=timedelta(seconds=60), commit_failures=0, init_sync=True,
    )
    now = time.monotonic()
    members = ",".join(sorted(r.split(":")[0][6:] for r in q.replica_ids))
    if q.quorum_id < last:
        sys.exit(f"quorum {q.quorum_id} after {last}")
    if q.quorum_id != last:
        print(f"group {group} step {step} quorum {q.quorum_id} of {members} after {now - before:.3f} s", flush=True)
    last, before = q.quorum_id, now
    step = max(step, q.max_step) + 1
    if step % 10 == 0:
        print(f"group {group} is at step {step}", flush=True)
    time.sleep(0.05)
print(f"group {group} has made {step} steps", flush=True)
