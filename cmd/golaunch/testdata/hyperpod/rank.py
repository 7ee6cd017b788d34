"""A rank with the client of HyperPod's elastic agent, which restarts within its process."""
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from hyperpod_elastic_agent import RestartMode, TrainingManager
from hyperpod_elastic_agent.checkpoint_discovery import CheckpointType

manager = TrainingManager()
agent = manager.InProcessRestart
saves = manager.get_checkpoint_discovery_client("/c", num_model_checkpoints=2)
attempt = int(os.environ["JOB_RESTART_COUNT"])
fault = threading.Event()


def watch():
    while True:
        agent.hyperpod_wait_fault()
        fault.set()


threading.Thread(target=watch, daemon=True).start()
_, info = agent.hyperpod_wait_rank_info(timeout=60)
assert info["worker_envs"]["RANK"] == os.environ["RANK"], info


def run():
    """Begins a run, and returns the rank, the number of the run and a sum over all ranks."""
    fault.clear()
    _, told = agent.hyperpod_barrier(timeout=60)
    fault.clear()
    os.environ.update(told["worker_envs"])
    agent.hyperpod_past_rcb_barrier()
    rank, count = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    job = told["aggregate_worker_data"]
    assert [ip["rank"] for ip in job["rank_ips"]] == [0], job
    last = [(w["rank"], w["failed"], w["data"]) for w in job["aggregate_worker_data"]]
    print(f"rank {rank}: run {count}, last run: {last}", flush=True)
    dist.init_process_group("gloo")  # the store has no keys of the previous run
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return rank, count, total.item()


def fail(rank, mode, reason):
    agent.hyperpod_send_data(rank, "step 7")
    agent.hyperpod_send_fault(rank, mode, reason, "")


rank, count, total = run()
if attempt == 0:
    saves.update(6, "/c/6", CheckpointType.MODEL_CHECKPOINT)
    if rank == 1:
        fail(rank, RestartMode.IN_PROCESS_RESTART, "the loss is not a number")
    assert fault.wait(60)
    rank, count, total = run()
    assert count == 1, count
    if rank == 1:
        fail(rank, RestartMode.PROCESS_LEVEL_RESTART, "the optimizer is gone")
    signal.pause()
print(f"rank {rank}: the newest checkpoint is {saves.get_latest_checkpoint_path()}", flush=True)
if attempt == 1:
    if rank == 0:
        fail(rank, RestartMode.IN_PROCESS_RESTART, "a link is down")
        run()
    signal.pause()
print(f"rank {rank} sums up: {total}", flush=True)
sys.stdout.flush()
os._exit(0)
