"""A rank with NVRx's client. Attempt 0 learns its limits and hangs. Attempt 1 asks for the end."""
import os
import signal
import sys

import torch.distributed as dist
from nvidia_resiliency_ext.fault_tolerance.data import WorkloadAction, WorkloadControlRequest
from nvidia_resiliency_ext.fault_tolerance.rank_monitor_client import RankMonitorClient

client = RankMonitorClient()
client.init_workload_monitoring()
limit = client.section_timeouts.section["checkpointing"]
print("limit", round(limit, 4), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    for section in "setup", "checkpointing":
        client.start_section(section)
        client.end_section(section)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    client.calculate_and_set_section_timeouts()
    print("learned", round(client.section_timeouts.section["checkpointing"], 4), flush=True)
    client.start_section("checkpointing")
    signal.pause()
client.send_workload_control_request(WorkloadControlRequest(WorkloadAction.ShutdownWorkload, "the data is gone"))
sys.exit(3)
