"""Serves torch's own store on 127.0.0.1 until stdin ends, with libuv on request. It prints the
port."""
import sys

from torch.distributed import TCPStore

try:
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv="libuv" in sys.argv[1:])
except TypeError:  # before 2.2
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
