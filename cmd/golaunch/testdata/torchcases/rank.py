"""Says who it is, in one write: torchrun's ranks share the console. A rank that lacks one of its variables fails."""
import os
import sys

names = """RANK LOCAL_RANK ROLE_RANK ROLE_NAME GROUP_RANK LOCAL_WORLD_SIZE ROLE_WORLD_SIZE WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR
    MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
    TORCH_NCCL_ASYNC_ERROR_HANDLING TORCHELASTIC_ERROR_FILE OF_THE_CALLER""".split()
missing = [name for name in names if name not in os.environ]
if missing:
    sys.exit(f"missing: {missing}")
sys.stdout.write(" ".join([f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", *sys.argv[1:]]) + "\n")
