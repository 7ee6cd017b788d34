"""Lets a torch that was built without libuv, as Debian's, have its stores: some of it asks for libuv whatever USE_LIBUV says."""
import functools
import sys

from torch import distributed
from torch.distributed import TCPStore


def do_without():
    try:
        TCPStore("localhost", 0, is_master=True, wait_for_workers=False, use_libuv=True)
        return
    except TypeError:  # it is older than libuv's
        return
    except getattr(distributed, "DistStoreError", ()):
        pass
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and getattr(module, "TCPStore", None) is TCPStore:
            module.TCPStore = functools.partial(TCPStore, use_libuv=False)
