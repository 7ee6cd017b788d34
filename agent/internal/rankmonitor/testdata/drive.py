"""Drives NVRx's own clients: python drive.py VERSION-DIRECTORY.

Each line of the standard input is PLACE COMMAND [ARGUMENT...]. It prints one line for each command.
"0 at DIRECTORY" names the directory of the sockets of the next clients.
"""
import json
import os
import sys

sys.path.insert(0, sys.argv[1])
os.environ.update(RANK="0", LOCAL_RANK="0")

import torch.distributed as dist
from nvidia_resiliency_ext.fault_tolerance import rank_monitor_client as rmc
from nvidia_resiliency_ext.fault_tolerance.data import WorkloadAction, WorkloadControlRequest

clients = {}


def limits(c):
    def short(n):
        return None if n is None else round(n, 6)

    hb, s = c.hb_timeouts, c.section_timeouts
    return json.dumps([short(hb.initial), short(hb.subsequent), {k: short(v) for k, v in s.section.items()}, short(s.out_of_section)])


def run(place, verb, *args):
    if verb == "at":
        os.environ.update(SOCKETS=args[0], FT_LAUNCHER_IPC_SOCKET=os.path.join(args[0], "launcher"))
        return "done"
    if verb == "init":
        os.environ.update(RANK=str(4 + int(place)), LOCAL_RANK=place)
        os.environ["FT_RANK_MONITOR_IPC_SOCKET"] = os.path.join(os.environ["SOCKETS"], place)
        clients[place] = rmc.RankMonitorClient()
        if args:
            clients[place].load_state_dict(json.loads(args[0]))
        clients[place].init_workload_monitoring()
        return limits(clients[place])
    c = clients[place]
    if verb == "learn":
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        c.calculate_and_set_hb_timeouts()
        c.calculate_and_set_section_timeouts()
        return limits(c)
    if verb == "state":
        return json.dumps(c.state_dict())
    if verb == "request":
        c.send_workload_control_request(WorkloadControlRequest(WorkloadAction(int(args[0])), args[1]))
        return "taken"
    getattr(c, verb)(*args)
    return "done"


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(run(*line.split()), flush=True)
    except Exception as e:
        print(f"{type(e).__name__}: {e}", flush=True)
