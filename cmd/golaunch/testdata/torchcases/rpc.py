"""The master asks the worker to say something."""
import os

from torch.distributed import rpc


def echo(text):
    return f"{text} from {rpc.get_worker_info().name}"


role = os.environ["ROLE_NAME"]
rpc.init_rpc(role, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
if role == "master":
    print(rpc.rpc_sync("worker", echo, args=("hello",)))
rpc.shutdown()
